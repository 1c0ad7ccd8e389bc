"""What happens to an open workbench from outside: its files, its worker, its terminal, its neighbours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import FAKE
from tests.faults import processes
from tests.faults.row import Act, Apart, Fault, Group
from tests.faults.task_files import as_line
from tests.faults.workbench import GOOD, REFERENCE, TASK, Workbench, torn, write_task

SLOW = "import time, torch\ndef softmax(x):\n    time.sleep(0.4)\n    return torch.softmax(x, dim=-1)\n"


def truncated(bench: Workbench) -> str:
    at = len(bench.lines), len(bench.said), time.monotonic()
    path = bench.folder / "solution.py"
    path.write_text("")
    path.write_text(GOOD + f"\nTRUNCATED = {time.monotonic_ns()}\n")
    bench.wait(lambda: _right(bench, at[0]), 20, "right answer")
    return "right in the end"


def _right(bench: Workbench, since: int) -> bool:
    return any(event["event"] == "finished" and event["right"] for _at, event in bench.lines[since:])


def deleted(bench: Workbench) -> str:
    since = len(bench.said)
    (bench.folder / "solution.py").unlink()
    return bench.until_said("no such file", 10, since)


def swapped(bench: Workbench) -> str:
    """The solution becomes a link to a file beside it, which is then edited."""
    since = len(bench.lines)
    (bench.folder / "variant.py").write_text(GOOD + f"\nVARIANT = {time.monotonic_ns()}\n")
    (bench.folder / "solution.py").unlink()
    (bench.folder / "solution.py").symlink_to("variant.py")
    bench.wait(lambda: _right(bench, since), 20, "right answer behind a link")
    since = len(bench.lines)
    (bench.folder / "variant.py").write_text(GOOD + f"\nVARIANT = {time.monotonic_ns()}\n")
    bench.wait(lambda: _right(bench, since), 20, "right answer to a save behind a link")
    (bench.folder / "solution.py").unlink()
    return "right before and after the edit"


def directory(bench: Workbench) -> str:
    since = len(bench.said)
    (bench.folder / "solution.py").unlink()
    (bench.folder / "solution.py").mkdir()
    said = bench.until_said(r"solution\.py", 10, since)
    (bench.folder / "solution.py").rmdir()
    return said


def fifo_task(bench: Workbench) -> str:
    since, path = len(bench.said), bench.folder / "task.toml"
    path.unlink()
    os.mkfifo(path)
    try:
        return bench.until_said(r"task\.toml", 8, since)
    finally:
        path.unlink()
        path.write_text(TASK)


def broken_task(bench: Workbench) -> str:
    since, path = len(bench.said), bench.folder / "task.toml"
    path.write_text("name = \n")
    said = bench.until_said(r"task\.toml", 10, since)
    path.write_text(TASK)
    return said


def broken_reference(bench: Workbench) -> str:
    since, path = len(bench.said), bench.folder / "reference.py"
    path.write_text("def (\n")
    said = bench.until_said(r"reference\.py", 10, since)
    path.write_text(REFERENCE)
    return said


def moved(bench: Workbench) -> str:
    aside = bench.folder.with_name("aside")
    bench.folder.rename(aside)
    time.sleep(0.5)
    aside.rename(bench.folder)
    return "".join(bench.said[-1:])


def burst(bench: Workbench) -> str:
    at = None
    for _ in range(60):
        at = bench.save(solution_py=GOOD)
        time.sleep(0.01)
    assert at is not None
    answer = bench.answer(at, 30)
    assert answer.statuses == {"ok"}, answer.words
    return "the last of 60 saves in 0.6 s is right"


def many_files(bench: Workbench) -> str:
    place = bench.folder / "notes"
    place.mkdir()
    for number in range(3000):
        (place / f"{number}.txt").touch()
    taken = bench.recovered(20)
    shutil.rmtree(place)
    return f"right after {taken:.1f} s beside 3000 files"


def emptied(bench: Workbench) -> str:
    since = len(bench.said)
    os.truncate(bench.folder / ".kernbench" / "runs.jsonl", 0)
    bench.recovered(20)
    said = bench.until_said(r"runs\.jsonl", 5, since)
    (bench.folder / "ITERATIONS.md").unlink()  # its entries have no runs any more
    return said


def state_deleted(folder: Path) -> str:
    bench = Workbench(write_task(folder), KERNBENCH_HARNESS=str(FAKE))
    try:
        bench.answer((0, 0, time.monotonic()), 30)
        shutil.rmtree(folder / ".kernbench")
        bench.recovered(20)
        return bench.until_said(r"\.kernbench|runs\.jsonl", 5)
    finally:
        bench.close()


def log_deleted(bench: Workbench) -> str:
    (bench.folder / "ITERATIONS.md").unlink()
    bench.recovered(20)
    assert (bench.folder / "ITERATIONS.md").is_file()
    return "made anew"


def killed_in_a_run(bench: Workbench) -> str:
    at = bench.save(solution_py=SLOW)
    bench.wait(lambda: any(event["event"] == "start" for _at, event in bench.lines[at[0] :]), 10, "start")
    processes.end(bench.workers()[:1])
    answer = bench.answer(at, 30)  # if it was killed before it was asked, another runs the slow source to its end
    assert answer.statuses & {"crashed", "ok"}, answer.words
    return answer.words


def killed_idle(bench: Workbench) -> str:
    """The save that follows at once is answered right: nothing of it was to blame."""
    processes.end(bench.workers()[:1])
    answer = bench.answer(bench.save(solution_py=GOOD), 15)
    assert answer.statuses == {"ok"}, f"answered {answer.statuses}: {answer.words}"
    return f"{answer.statuses}, {answer.said}"


def stopped(bench: Workbench) -> str:
    """A worker that something else has stopped: said at once, not at the deadline of 60 s."""
    at = bench.save(solution_py=SLOW)
    bench.wait(lambda: any(event["event"] == "start" for _at, event in bench.lines[at[0] :]), 10, "start")
    os.kill(bench.workers()[0], signal.SIGSTOP)
    began = time.monotonic()
    answer = bench.answer(at, 15)
    return f"{time.monotonic() - began:.1f} s: {answer.words}"


def launcher_stopped(bench: Workbench) -> str:
    os.kill(bench.launchers()[0], signal.SIGSTOP)
    return bench.answer(bench.save(solution_py="while True: pass\n"), 20).words


def launcher_killed(bench: Workbench) -> str:
    at = bench.save(solution_py=SLOW)
    bench.wait(lambda: any(event["event"] == "start" for _at, event in bench.lines[at[0] :]), 10, "start")
    os.kill(bench.launchers()[0], signal.SIGKILL)
    return bench.answer(at, 15).words


def too_large(bench: Workbench) -> str:
    since = len(bench.said)
    bench.save(solution_py="# " + "x" * 2_000_000 + "\n" + GOOD)
    return bench.until_said("bytes", 10, since)


def stopped_idle(bench: Workbench) -> str:
    os.kill(bench.workers()[0], signal.SIGSTOP)
    answer = bench.answer(bench.save(solution_py=GOOD), 15)
    return f"{answer.statuses}: {answer.words}"


def ended_by(number: signal.Signals) -> Apart:
    def act(folder: Path) -> str:
        bench = Workbench(write_task(folder), KERNBENCH_HARNESS=str(FAKE))
        try:
            bench.answer((0, 0, time.monotonic()), 30)
            bench.settle(10, 0.3)
            began = time.monotonic()
            bench.process.send_signal(number)
            code = bench.process.wait(10)
            gone = processes.until(lambda: not processes.marked(bench.mark), 5)
            assert gone, f"left running: {[processes.name(pid) for pid in processes.marked(bench.mark)]}"
            assert torn(folder) == [], torn(folder)
            assert number == signal.SIGKILL or code == 130, f"exit code {code}"
            return f"exit {code}, all gone after {time.monotonic() - began:.2f} s"
        finally:
            bench.close()

    return Apart(name=f"{number.name} to the workbench", group="surroundings", done="sent while a spare waits", do=act,
                 quick=number in (signal.SIGHUP, signal.SIGKILL), says="all gone")  # fmt: skip


def killed_at_once(folder: Path) -> str:
    """F5: a save freezes a spare that has just been started; then the workbench is killed."""
    worst, rounds = 0.0, 12
    for number in range(rounds):
        task = write_task(folder.parent / str(number) / "softmax")
        bench = Workbench(task, KERNBENCH_HARNESS=str(FAKE), FAKE_START="1.0")
        try:
            bench.answer((0, 0, time.monotonic()), 30)
            processes.until(lambda: len(bench.workers()) > 1, 5, 0.005)  # noqa: B023
            time.sleep(number / rounds * 0.2)
            bench.save(solution_py=SLOW)
            time.sleep(0.06)
            bench.process.kill()
            bench.process.wait()
            began = time.monotonic()
            gone = processes.until(lambda: not processes.marked(bench.mark), 3)  # noqa: B023
            left = [f"{processes.name(pid)} ({processes.state(pid)})" for pid in processes.marked(bench.mark)]
            assert gone, f"left running in round {number}: {left}"
            assert torn(task) == [], torn(task)
            worst = max(worst, time.monotonic() - began)
        finally:
            bench.close()
    return f"nothing left of {rounds} trees, {worst:.2f} s at worst"


def two_workbenches(folder: Path) -> str:
    write_task(folder)
    first, second = (Workbench(folder, KERNBENCH_HARNESS=str(FAKE)) for _ in range(2))
    try:
        for bench in (first, second):
            bench.answer((0, 0, time.monotonic()), 30)
        for _ in range(6):
            first.recovered(20)
        said = second.until_said("kernbench", 10) if second.said else first.until_said("kernbench", 10)
        time.sleep(1.0)
        assert torn(folder) == [], torn(folder)
        return said
    finally:
        first.close()
        second.close()


def closed_stdout(folder: Path) -> str:
    from tests.faults.workbench import settings

    write_task(folder)
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "kernbench", "run"]
        done = subprocess.run(words, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, check=False,
                              env=settings("x", KERNBENCH_HARNESS=str(FAKE)))  # fmt: skip
    assert done.returncode in (1, 2), f"exit {done.returncode}"
    return done.stderr


def pruned(folder: Path) -> str:
    """Sources that no entry names do not pile up: those of the last runs stay, and what was used within the hour."""
    made, kept = 130, write_task(folder) / ".kernbench" / "sources"
    lines = []
    for number in range(made):
        source = f"{number:064x}"
        (kept / source).mkdir(parents=True)
        (kept / source / "solution.py").write_text(GOOD)
        os.utime(kept / source, (time.time() - 200_000,) * 2)
        run = f"20261101T000000-{number:06x}"
        lines += [{"event": "start", "run": run, "schema": 1, "task": "softmax", "source": source, "cases": []}]
        lines += [{"event": "failed", "run": run, "source": source, "message": "no"}]
    (folder / ".kernbench" / "runs.jsonl").write_text("".join(map(as_line, lines)))
    bench = Workbench(folder, KERNBENCH_HARNESS=str(FAKE))
    try:
        bench.recovered(30)
        few = processes.until(lambda: len(list(kept.iterdir())) < made - 20, 15)
        assert few, f"{len(list(kept.iterdir()))} sources are kept of {made}"
    finally:
        bench.close()
    return f"{len(list(kept.iterdir()))} of {made} sources kept"


def compiler_scraps(folder: Path) -> str:
    """A compiler that is killed leaves its scraps where they are removed."""
    from tests.faults.compiled_sources import compile_forever

    temp = folder.parent / "tmp"
    temp.mkdir(parents=True)
    bench = Workbench(write_task(folder), deadlines={"build": 2, "compile": 4}, TMPDIR=str(temp))
    try:
        bench.answer((0, 0, time.monotonic()), 60)
        compile_forever(bench)
        bench.recovered(30)
    finally:
        bench.close()
    left = [path.name for path in temp.rglob("cc*")]
    assert not left, f"left in the temporary folder: {left}"
    return "no scraps"


def act(name: str, done: str, do: object, says: str = "", group: Group = "files", **more: object) -> Act:
    return Act(name=name, group=group, done=done, do=do, says=says, **more)  # type: ignore[arg-type]


def apart(name: str, done: str, do: object, says: str = "", **more: object) -> Apart:
    return Apart(name=name, group="surroundings", done=done, do=do, says=says, **more)  # type: ignore[arg-type]


SAVES: list[Fault] = [
    act("truncated and written", "an editor that writes in two steps", truncated, "right in the end", quick=True),
    act("solution deleted", "rm solution.py, then a good save", deleted, "create it", quick=True),
    act("solution is a link", "a save behind the link", swapped, "right", quick=True),
    act("solution is a directory", "mkdir solution.py, then a good save", directory, r"solution\.py"),
    act("F9 fifo in the place of task.toml, under an open workbench", "mkfifo, then the file is back", fifo_task, r"task\.toml", quick=True),
    act("task.toml broken under an open workbench", "name = , then the file is back", broken_task, r"task\.toml"),
    act("reference.py broken under an open workbench", "def (, then the file is back", broken_reference, r"reference\.py", quick=True),
    act("folder moved away", "and back after 0.5 s", moved),
    act("60 saves in 0.6 s", "an editor that saves at every key", burst, "right"),
    act("3000 files", "in a folder of the task", many_files, "right"),
    act("F13 source over 1 MB", "2 MB of comments", too_large, r"solution\.py:? 2,000,\d+ bytes"),
    act("F13 runs.jsonl emptied", "truncated to 0 under an open workbench", emptied, r"runs\.jsonl", quick=True),
    apart("F13 .kernbench deleted", "rm -r under an open workbench", state_deleted, r"\.kernbench|runs\.jsonl"),
    act("ITERATIONS.md deleted", "rm under an open workbench", log_deleted, "made anew"),
]  # fmt: skip
OUTSIDE: list[Fault] = [
    act("worker killed in a run", "kill -9 of the worker", killed_in_a_run, "was killed", "surroundings"),
    act("F13 idle worker killed and a save at once", "kill -9 of the worker, then a good save", killed_idle, "ok", "surroundings"),
    act("F13 kill -STOP of the worker in a run", "kill -STOP of the worker", stopped, "stopped", "surroundings"),
    act("kill -STOP of the launcher in a run", "and the kernel never ends", launcher_stopped, "timed out", "surroundings"),
    act("kill -9 of the launcher in a run", "kill -9 of the worker's parent", launcher_killed, "was killed", "surroundings"),
    act("kill -STOP of an idle worker", "kill -STOP, then a good save", stopped_idle, "stopped|ok", "surroundings"),
    *(ended_by(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)),
    apart("F5 kill -9 just after a spare's start", "a save 0 to 0.2 s after it, then kill -9 of the workbench, 12 times", killed_at_once, "nothing left"),
    apart("two workbenches on one task", "both serve every save", two_workbenches, "(?i)another|two|other", quick=True),
    apart("stdout is full", "run > /dev/full", closed_stdout, "(?i)no space|stdout|write", quick=True),
    apart("F14 sources without an entry", "130 saves of the other day that did not build", pruned, "kept", quick=True),
    apart("F14 a compiler that is killed", "#include of a fifo, then a good save", compiler_scraps, "no scraps"),
]  # fmt: skip
SURROUNDINGS: list[Fault] = [*SAVES, *OUTSIDE]
