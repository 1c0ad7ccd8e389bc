"""Other people's machines, each through a stub: slow and full disks, clocks, no inotify, and the tools of a GPU."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import FAKE
from tests.faults import processes
from tests.faults.row import Apart, Fault, command
from tests.faults.workbench import GOOD, Workbench, torn, write_task
from tests.machine.test_telemetry import FakeNvml
from tests.measure.pseudo import Terminal, kernbench


@functools.cache
def preload() -> str:
    """The library of preload.c, built once for this process."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "no C compiler here to build the stub with"
    library = Path(tempfile.mkdtemp(prefix="kernbench-preload-")) / "preload.so"
    source = str(Path(__file__).with_name("preload.c"))
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True)
    return str(library)


@contextlib.contextmanager
def screen(folder: Path, **environment: str) -> Iterator[Terminal]:
    """The workbench on a pty, over the fake harness, once its first entry is there."""
    given = {"KERNBENCH_HARNESS": str(FAKE), "XDG_CONFIG_HOME": str(folder.parent), **environment}
    terminal = Terminal(kernbench(str(folder)), 120, 40, **given)
    try:
        terminal.until(b"quit")
        terminal.until(b"#1", 60)
        terminal.count(1.0)
        yield terminal
    finally:
        terminal.leave()


def answers(terminal: Terminal, within: float) -> float:
    """Seconds until `?` shows the keys."""
    typed = terminal.type("?")
    taken = terminal.until(b"Keys", 30) - typed
    terminal.type("\x1b")
    assert taken < within, f"`?` was answered after {taken:.2f} s"
    return taken


def slow_files(folder: Path) -> str:
    flag = folder.parent / "slow"
    write_task(folder)
    slow = {
        "LD_PRELOAD": preload(),
        "KERNBENCH_SLOW": str(folder),
        "KERNBENCH_SLOW_FLAG": str(flag),
        "FAKE_SLOW": "0.5",
    }
    with screen(folder, **slow) as terminal:
        taken = []
        for number, is_slow_from_the_start in ((2, True), (3, False)):
            text = f"{GOOD}TIME_US = {40 + number}.0\n"
            if is_slow_from_the_start:
                flag.touch()
                (folder / "solution.py").write_text(text)
            else:
                (folder / "solution.py").write_text(text + 'DO = "slow"\n')
                terminal.until(b"checking", 30)
                flag.touch()
            for _ in range(6):
                taken.append(answers(terminal, 1.0))
                terminal.count(0.7)
            flag.unlink()
            terminal.until(f"#{number}".encode(), 60)
    return f"`?` answered within {max(taken):.2f} s at worst; both entries came"


def held_lock(name: str) -> Apart:
    def act(folder: Path) -> str:
        write_task(folder)
        with screen(folder) as terminal, (folder / name).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            (folder / "solution.py").write_text(GOOD + "TIME_US = 40.0\n")
            if name == "ITERATIONS.md":
                terminal.until(str(os.getpid()).encode(), 15)  # the screen says for whom the entry waits
            taken = []
            for _ in range(4):
                terminal.count(0.5)
                taken.append(answers(terminal, 1.0))
            fcntl.flock(file, fcntl.LOCK_UN)
            terminal.until(b"#2", 30)
        return f"`?` answered within {max(taken):.2f} s at worst; entry 2 came once the lock was free"

    return Apart(name=f"F1 another program holds the lock of {name}", group="surroundings",
                 done=f"flock of {name}, then a save and keys on the screen", do=act)  # fmt: skip


def flooded(folder: Path) -> str:
    write_task(folder)
    with screen(folder, FAKE_FLOOD="7000") as terminal:  # 2 GB
        (folder / "solution.py").write_text('def softmax(x): ...\nDO = "flood"\nTIME_US = 40.0\n')
        terminal.until(b"checking", 30)
        taken = []
        for _ in range(8):
            taken.append(answers(terminal, 0.5))
            terminal.count(0.2)
        most = processes.memory(terminal.process.pid, "VmHWM")
        runs = (folder / ".kernbench" / "runs.jsonl").read_text()
        assert runs.count('"event":"finished"') < 2, "the flood was over too soon"
    worst = sorted(taken)[-2]
    assert worst < 0.1, f"`?` took {worst:.3f} s, all but once"
    assert most < 120, f"the workbench grew to {most:.0f} MB"
    return f"`?` answered within {worst * 1000:.0f} ms, {most:.0f} MB at most"


def clock_jumps(folder: Path) -> str:
    clock = folder.parent / "clock"
    write_task(folder)
    clock.write_text("0")
    bench = Workbench(folder, LD_PRELOAD=preload(), KERNBENCH_CLOCK=str(clock), KERNBENCH_HARNESS=str(FAKE))
    try:
        bench.answer((0, 0, time.monotonic()), 60)
        years = []
        for offset in (315_000_000, -315_000_000, -1_700_000_000, 3600, 0):
            clock.write_text(str(offset))
            bench.recovered(20)
            years.append(str(bench.lines[-1][1]["at"])[:4])
        assert len(set(years)) >= 3, f"the stub did not move the clock: {years}"
        assert torn(folder) == [], torn(folder)
    finally:
        bench.close()
    return f"every save answered, in the years {', '.join(years)}; numbers go on"


def no_inotify(folder: Path) -> str:
    write_task(folder)
    bench = Workbench(folder, LD_PRELOAD=preload(), KERNBENCH_NO_INOTIFY="1", KERNBENCH_HARNESS=str(FAKE))
    try:
        bench.answer((0, 0, time.monotonic()), 60)
        said = bench.until_said("polling", 10)
        for _ in range(3):
            bench.recovered(20)
        assert sum("polling" in line for line in bench.said) == 1, "said more than once"
    finally:
        bench.close()
    return said


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[str]:
    """A file system of 1 MB; if nothing may be mounted, a limit on the size of files replaces it."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield "by a limit on the size of files, as nothing can be mounted here"
        return
    try:
        yield "a tmpfs of 1 MB"
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def full_disk(folder: Path) -> str:
    disk = folder.parent / "disk"
    with small_disk(disk) as how:
        task = write_task(disk / "softmax")
        assert command(task, "run", "-m", "fits").returncode == 0
        kept = (task / "ITERATIONS.md").read_bytes()
        if how.startswith("a tmpfs"):
            with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            result = command(task, "run", "-m", "does not fit")
            (disk / "ballast").unlink()
        else:
            size = (task / ".kernbench" / "runs.jsonl").stat().st_size

            def limit() -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            from tests.faults.workbench import settings

            result = subprocess.run([sys.executable, "-m", "kernbench", "run", "-m", "x"], cwd=task, capture_output=True, text=True,
                                    env=settings("x", KERNBENCH_HARNESS=str(FAKE)), preexec_fn=limit, timeout=30, check=False)  # fmt: skip
        assert (task / "ITERATIONS.md").read_bytes().startswith(kept), "ITERATIONS.md lost its entry"
        assert torn(task) == [], torn(task)
        again = command(task, "run", "-m", "space again")
        assert again.returncode == 0, again.stderr
        return f"{how}: exit {result.returncode}: {result.stderr}"


# -- the tools of a GPU ------------------------------------------------------------------------------------------------


class FallsOff(FakeNvml):
    """A GPU that is lost after the first reading: every call raises."""

    readings = 0

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> object:
        type(self).readings += 1
        if self.readings > 2:
            raise RuntimeError("GPU is lost")
        return super().nvmlDeviceGetUtilizationRates(handle)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> object:
        if self.readings > 2:
            raise RuntimeError("GPU is lost")
        return super().nvmlDeviceGetMemoryInfo(handle)


class TooOld(FakeNvml):
    def nvmlInit(self) -> None:
        raise RuntimeError("Driver/library version mismatch")


def meters(nvml: FakeNvml, readings: int) -> str:
    """What the GPU pane shows after so many readings."""
    from kernbench.machine.telemetry import MachineReader
    from kernbench.tui.text.gpu_text import Meters

    reader, shown = MachineReader({}, nvml), Meters(ascii_only=True)
    shown.device = "cuda:0"
    for _ in range(readings):
        shown.take(reader.read())
    return "\n".join("".join(part for part, _ in line).rstrip() for line in shown.lines(60))


def ncu_says(folder: Path, script: str, seconds: float = 20.0, patience: float = 20.0, kill: bool = False) -> str:
    """What a profile with such an ncu is answered with; no process of it may be left."""
    from kernbench.ncu import standby
    from tests.ncu.kept_csv import HERE

    harness = folder.parent / "harness"
    shutil.copytree(FAKE, harness)
    shutil.copy(HERE / "fake" / "harness" / "target.py", harness)
    tool, mark = folder.parent / "ncu", f"ncu-{os.getpid()}-{time.monotonic_ns()}"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)

    async def ask() -> str:
        waiting = await standby.Standby.start(standby.Setup(sys.executable, "cuda:0", tool, harness), False)
        waiting.wait_ready = functools.partial(waiting.wait_ready, patience)  # type: ignore[method-assign]
        try:
            request = {"task": {}, "sides": [{"name": "solution"}], "case": "hang" if kill else "a"}
            asking = asyncio.create_task(waiting.profile(request, seconds=seconds))
            if kill:
                async with asyncio.timeout(20):
                    while waiting._step != "profile":
                        await asyncio.sleep(0.01)
                processes.end(pid for pid in processes.marked(mark) if str(tool) in processes.name(pid))
            outcome = await asking
            return f"{outcome.problem.code}: {outcome.problem.text}" if outcome.problem else "no problem"
        finally:
            await waiting.close()

    os.environ[processes.MARK] = mark
    try:
        said = asyncio.run(ask())
    finally:
        del os.environ[processes.MARK]
    assert processes.until(lambda: not processes.marked(mark), 5), (
        f"left running: {[processes.name(pid) for pid in processes.marked(mark)]}"
    )
    return said


RUN_TARGET = (
    'while [ $# -gt 0 ]; do case "$1" in --log-file) log=$2; shift 2;; -c) break;; *) py=$1; shift;; esac; done\n'
)
HANGS = "sleep 600"
GARBAGE = f'{RUN_TARGET}"$py" "$@"; head -c 300000 /dev/urandom > "$log"; exit 0'
KILLED = f'{RUN_TARGET}"$py" "$@"'


def hanging_doctor(folder: Path) -> str:
    write_task(folder)
    tools = folder.parent / "bin"
    tools.mkdir()
    (tools / "ncu").write_text("#!/bin/sh\nsleep 600\n")
    (tools / "ncu").chmod(0o755)
    result = command(folder, "doctor", within=90, megabytes=0, PATH=f"{tools}:{os.environ['PATH']}")
    return next((line for line in result.stdout.splitlines() if re.search(r"\bncu\b", line)), result.stdout)


def apart(name: str, done: str, do: object, says: str = "", **more: object) -> Apart:
    return Apart(name=name, group="surroundings", done=done, do=do, says=says, **more)  # type: ignore[arg-type]


MACHINES: list[Fault] = [
    apart("slow files", "open, stat, lock and fsync below the task take 2 s each; keys on the screen", slow_files, "both entries came"),
    held_lock("ITERATIONS.md"),
    held_lock(".kernbench/runs.jsonl"),
    apart("F10 keys under a flood", "a kernel prints without end; `?` on the screen", flooded, "answered within"),
    apart("clock jumps", "ten years ahead, ten back, to 1972, an hour ahead", clock_jumps, "numbers go on", quick=True),
    apart("no inotify", "all instances of the user are taken", no_inotify, "cannot watch the folder .*polling", quick=True),
    apart("full disk", "no byte left for runs.jsonl", full_disk, r"exit 2:[\s\S]*(No space left|File too large|not recorded)", quick=True),
    apart("GPU falls off the bus", "NVML raises for every reading after the first", lambda _folder: meters(FallsOff(), 3), "NVIDIA H200", quick=True),
    apart("driver too old", "nvmlInit raises", lambda _folder: meters(TooOld(), 2), "Driver/library version mismatch", quick=True),
    apart("ncu hangs", "it starts nothing and never ends", lambda folder: ncu_says(folder, HANGS, patience=1.0), "timed_out|not_started", quick=True),
    apart("ncu prints garbage", "300 kB of random bytes instead of csv", lambda folder: ncu_says(folder, GARBAGE), "ncu", never="launched no kernel", quick=True),
    apart("ncu is killed mid-profile", "kill -9 of ncu alone", lambda folder: ncu_says(folder, KILLED, kill=True), "ended|ncu_failed", quick=True),
    apart("F13 doctor and an ncu that hangs", "its --version never ends", hanging_doctor, "ncu", never=r"^ok +ncu"),
    apart("no HOME", "HOME=/nonexistent", lambda folder: command(write_task(folder), "run", "-m", "words", HOME="/nonexistent").stdout, "entry 1", quick=True),
]  # fmt: skip
