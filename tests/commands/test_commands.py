"""The command line over the fake harness: exit codes, JSON lines, the log commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any

import pytest
from click.testing import CliRunner

from kernbench import commands
from kernbench.cli import GROUPS, cli
from tests import FAKE, ROOT
from tests.sessions import write


def settings(**environment: str) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return {**os.environ, "KERNBENCH_HARNESS": str(FAKE), "PYTHONPATH": paths, **environment}


def kernbench(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command, given = [sys.executable, "-m", "kernbench", *words], settings(**environment)
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=60, check=False)


def lines(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_lines_have_the_promised_shape(folder: Path) -> None:
    result = kernbench(folder, "run", "--json")
    assert result.returncode == 0
    start, *cases, finished, confirmed = lines(result)
    assert (start["event"], start["schema"], start["task"]) == ("start", 1, "toy")
    assert [case["id"] for case in cases] == list(start["cases"])
    keys = (
        "id status clock baseline_us solution_us best_us speedup low high verdict vs_best wall light error "
        "findings kernels blocks dropped known detail"
    )
    assert set(keys.split()) <= set(cases[0])
    assert cases[0]["verdict"] == "faster"
    keys = "run source geomean low high verdict best confirmed awaits stalled counts environment"
    assert set(keys.split()) <= set(finished)
    assert (finished["best"], finished["confirmed"], finished["awaits"]) == (True, None, True)
    assert set(confirmed) == set("event run confirmed why geomean low high judged seconds".split())
    assert (confirmed["event"], confirmed["run"], confirmed["confirmed"]) == ("confirmed", finished["run"], True)
    assert "NaN" not in result.stdout
    assert not (folder / "ITERATIONS.md").exists()


def test_a_run_that_would_be_best_is_confirmed_before_the_command_ends(folder: Path) -> None:
    first = kernbench(folder, "run", "-m", "first").stdout.splitlines()
    assert " · best? over eager · " in " · ".join(first)
    assert first[-1] == "#1 is confirmed as best: 2.00x [2.00, 2.00] in a new worker; 192 calls judged"
    assert re.search(r" 2\.00x ±0\.1% +first, best now ", kernbench(folder, "log").stdout)
    write(folder, "TIME_US = 25.0\nCONFIRM_US = 50.0")
    refused = kernbench(folder, "run", "-m", "second").stdout.splitlines()
    numbers = "4.00x [4.00, 4.00] in the run, 2.00x [2.00, 2.00] in a new worker; run it again"
    assert refused[-1] == f"#2 is not the best: {numbers}"
    assert " refused " in kernbench(folder, "log").stdout
    assert f"- refused: {numbers}\n" in kernbench(folder, "show", "2").stdout
    write(folder, "TIME_US = 20.0")
    assert " best? over eager" in kernbench(folder, "run", "-m", "third", "--no-confirm").stdout
    log = kernbench(folder, "log").stdout
    assert re.search(r" 5\.00x ±0\.1% +best\? ", log)
    assert "first, best now" in log
    assert re.search(r" 2\.00x +5\.00x best\? ", kernbench(folder.parent, "status").stdout)


@pytest.mark.parametrize(
    ("text", "code", "allowing"),
    [
        ("TIME_US = 200.0", 1, 0),
        ('DO = "wrong"', 1, 1),
        ('DO = "syntax"', 1, 1),
        ('DO = "crash"\nON = "a"', 1, 1),
        ("TIME_US = 100.0", 0, 0),
    ],
)
def test_exit_codes_follow_the_rows(folder: Path, text: str, code: int, allowing: int) -> None:
    write(folder, text)
    assert kernbench(folder, "run").returncode == code
    assert kernbench(folder, "run", "--allow-slower").returncode == allowing


def test_what_only_needs_a_gpu_is_no_failure(folder: Path) -> None:
    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace('"cpu"', '"cuda"'))
    result = kernbench(folder, "run", "--case", "a")
    assert (result.returncode, result.stdout.splitlines()[0][:28]) == (0, "not run: 1 (needs a GPU: wit")
    assert "nothing was checked: without a GPU, a [[smoke]] case in task.toml would be" in result.stdout


def test_a_failed_build_is_a_line_per_case_and_one_sentence(folder: Path) -> None:
    write(folder, 'DO = "syntax"')
    result = kernbench(folder, "run", "--json")
    _start, *cases, finished = lines(result)
    assert {case["status"] for case in cases} == {"build_error"}
    assert finished["counts"] == {"build_error": 6}
    assert "kernbench: solution.py:3: invalid syntax" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_exception_of_several_lines_is_one_sentence(folder: Path) -> None:
    write(folder, 'DO = "raise"\nSAYS = "Bad\\nName: two\\r\\nlines"')
    result = kernbench(folder, "run", "-m", "x")
    assert "    solution.py:2: Bad Name: two lines\n" in result.stdout
    assert "- result: a 16x16: solution.py:2: Bad Name: two lines; " in (folder / "ITERATIONS.md").read_text()
    write(folder, 'DO = "syntax"\nSAYS = "Bad\\nName: two\\r\\nlines"')
    assert "kernbench: solution.py:3: Bad Name: two lines\n" in kernbench(folder, "run").stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", "no_such_task"], 2, "no task 'no_such_task' here"),
        (["run", "--case", "zzz"], 2, "no case of toy matches 'zzz'"),
        (["run", "--device", "gpu0"], 2, "expected cpu, idle or cuda:N"),
        (["run", "--device", "cuda:0"], 2, "is a CPU task (device in its task.toml)"),
        (["run", "--deadline", "lunch=3"], 2, "--deadline lunch=3"),
        (["run", "--baseline", "nothing.py"], 2, "unknown baseline 'nothing.py': expected eager"),
        (["run", "--baseline", "best"], 2, "no best to compare with yet"),
        (["run", "--python", "/no/python"], 2, "cannot start /no/python"),
        (["show", "7"], 2, "no iteration '7'"),
        (["run", "--budget", "nan"], 2, "a positive number of milliseconds"),
        (["run", "--deadline", "time=nan"], 2, "--deadline time=nan"),
        (["run", "--next", "more"], 2, "add -m TEXT to make one"),
        (["run", "--warm"], 2, "only applies to a GPU's L2"),
        ([], 2, "needs a terminal"),
        (["frobnicate"], 2, "no task 'frobnicate' here"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, words: list[str], code: int, says: str) -> None:
    result = kernbench(folder, *words)
    assert result.returncode == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_dumb_terminal_gets_a_sentence_and_no_screen(folder: Path) -> None:
    ours, theirs = os.openpty()
    command, given = [sys.executable, "-m", "kernbench"], settings(TERM="dumb")
    subprocess.run(command, cwd=folder, env=given, stdin=theirs, stdout=theirs, stderr=theirs, timeout=60, check=False)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert "a terminal that is not dumb (TERM); `kernbench run TASK`" in said
    assert "\x1b" not in said


def test_whoever_stops_reading_is_not_told_that_a_case_is_wrong(folder: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    command, given = [sys.executable, "-m", "kernbench", "run"], settings()
    result = subprocess.run(
        command, cwd=folder, env=given, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(theirs)
    assert result.returncode == 141
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


def test_a_missing_device_exits_with_3(folder: Path) -> None:
    result = kernbench(folder, "run", FAKE_UNUSABLE="1")
    assert result.returncode == 3
    assert "there is no device cuda:7" in result.stderr


def test_log_show_diff_restore(folder: Path) -> None:
    for time_us, words in ((50.0, "first"), (25.0, "twice as fast"), (30.0, "slower again")):
        write(folder, f"TIME_US = {time_us}")
        assert kernbench(folder, "run", "-m", words, "--next", "go on").returncode == 0
    table = kernbench(folder, "log").stdout
    assert "2  " in table
    assert "improved" in table
    assert [entry["iteration"] for entry in lines(kernbench(folder, "log", "--json"))] == [1, 2, 3]
    assert kernbench(folder, "show", "2").stdout.startswith("## 2 · twice as fast · 4.00x · improved")
    assert "TIME_US = 25.0" in kernbench(folder, "show", "best", "--source").stdout
    change = kernbench(folder, "diff").stdout
    assert "-TIME_US = 25.0" in change
    assert "+TIME_US = 30.0" in change
    write(folder, "TIME_US = 77.0  # never run")
    result = kernbench(folder, "restore", "best")
    assert result.returncode == 0
    assert "TIME_US = 25.0" in (folder / "solution.py").read_text()
    command = re.search(r"`kernbench (restore \w{8})` undoes this", result.stderr)
    assert command is not None, result.stderr
    assert "+TIME_US = 77.0" in kernbench(folder, "diff", "now", command[1].split()[1]).stdout
    assert kernbench(folder, *command[1].split()).returncode == 0
    assert "TIME_US = 77.0  # never run" in (folder / "solution.py").read_text()
    assert "no file changed" in kernbench(folder, *command[1].split()).stderr
    assert "no iteration 'abcdef'" in kernbench(folder, "restore", "abcdef").stderr
    from_outside = kernbench(folder.parent, "restore", f"./{folder.name}", "1").stderr
    command = re.search(rf"`kernbench (restore ./{folder.name} \w{{8}})` undoes this", from_outside)
    assert command is not None, from_outside
    assert kernbench(folder.parent, *command[1].split()).returncode == 0
    assert "TIME_US = 77.0  # never run" in (folder / "solution.py").read_text()
    assert "4.00x" in kernbench(folder.parent, "status").stdout


def test_the_log_names_a_baseline_that_is_not_the_tasks_own(folder: Path) -> None:
    assert kernbench(folder, "run", "-m", "one").returncode == 0
    write(folder, "TIME_US = 25.0")
    assert kernbench(folder, "run", "-m", "two", "--baseline", "compile").returncode == 0
    _, one, two = kernbench(folder, "log").stdout.splitlines()
    assert "over" not in one
    assert two.endswith("two (over compile)")


def test_best_is_the_tasks_own_whatever_was_compared_since(folder: Path) -> None:
    assert kernbench(folder, "run", "-m", "one").returncode == 0
    write(folder, "TIME_US = 25.0")
    finished = lines(kernbench(folder, "run", "--json", "--baseline", "best"))[-1]
    assert not finished["best"]
    assert "TIME_US = 50.0" in kernbench(folder, "show", "best", "--source").stdout
    assert "-TIME_US = 50.0" in kernbench(folder, "diff").stdout


def test_watch_leaves_when_its_device_is_not_there(folder: Path) -> None:
    result = kernbench(folder, "watch", FAKE_UNUSABLE="1")
    assert result.returncode == 3


def test_watch_stays_when_its_device_is_gone_for_a_while(folder: Path, tmp_path: Path) -> None:
    """A kernel took the worker down, and meanwhile somebody else filled the GPU."""
    full, command = tmp_path / "full", [sys.executable, "-m", "kernbench", "watch", "--json"]
    environment = settings(FAKE_FULL=str(full))
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, env=environment, text=True, **both) as watching:  # type: ignore[call-overload]
        try:
            _read_to(watching.stdout, '"event":"finished"')
            full.touch()
            for number in range(4):  # the worker, the spare, and then there is none
                write(folder, f'DO = "crash"\nTIME_US = {number}.0')
                if "there is no device" in _read_to(watching.stdout, '"event":"finished"', "there is no device"):
                    break
            else:
                pytest.fail("a worker was had although the GPU is full")
            full.unlink()
            write(folder, "TIME_US = 40.0")
            assert json.loads(_read_to(watching.stdout, '"event":"finished"'))["right"]
            assert watching.poll() is None
        finally:
            watching.terminate()


def _read_to(stream: IO[str], *parts: str) -> str:
    return next(line for line in stream if any(part in line for part in parts))


def test_a_part_of_the_cases_makes_no_best(folder: Path) -> None:
    finished = lines(kernbench(folder, "run", "--json", "--case", "a"))[-1]
    assert finished["counts"]["headline"] == 1
    assert not finished["best"]


def test_completion_scripts(folder: Path) -> None:
    assert "_KERNBENCH_COMPLETE" in kernbench(folder, "completion", "bash").stdout


def test_an_unknown_command_is_named(folder: Path) -> None:
    result = kernbench(folder, "ruun", "toy")
    assert (result.returncode, result.stderr.splitlines()[-1]) == (
        2,
        "Error: unknown command 'ruun'; did you mean run?",
    )


def test_a_new_task_begins_in_one_way(tmp_path: Path) -> None:
    result = kernbench(tmp_path, "new", "one", "--host", "--cuda")
    assert result.returncode == 2
    assert "use only one of" in result.stderr
    assert not (tmp_path / "one").exists()


def test_a_part_of_the_cases_is_called_so_and_not_compared(folder: Path) -> None:
    assert kernbench(folder, "run", "-m", "all").returncode == 0
    assert kernbench(folder, "run", "-m", "some", "--case", "a").returncode == 0
    last = kernbench(folder, "log").stdout.splitlines()[-1]
    assert " partial " in last


def test_a_second_signal_does_not_end_the_closing() -> None:
    """`timeout` sends two, and the processes of a session are waited for in between."""
    program = """
import asyncio, os, signal
from kernbench.cli import GROUPS, cli
from kernbench.commands.run import run_until_signal

async def main():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        print("closed")

raise SystemExit(run_until_signal(main()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "closed\n", "")


def test_words_that_are_not_utf8_are_logged_as_far_as_they_can_be_read(folder: Path) -> None:
    result = kernbench(folder, "run", "-m", os.fsdecode(b"caf\xe9 loads"))
    assert result.returncode == 0, result.stderr
    assert "caf\ufffd loads" in (folder / "ITERATIONS.md").read_text(encoding="utf-8")


def test_watch_ends_when_its_reader_has_left(folder: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m kernbench watch --json | head -1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=settings(), capture_output=True, text=True, timeout=30, check=False
    )
    assert json.loads(result.stdout)["event"] == "start"
    assert result.returncode == 141
    assert "Broken pipe" not in result.stderr


@pytest.mark.parametrize("streams", [">/dev/full", ">/dev/full 2>&1"])
@pytest.mark.parametrize("words", ["run -m loads", "watch", "watch --json"])
def test_a_full_disk_under_the_output_ends_it_and_not_its_run(folder: Path, words: str, streams: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m kernbench {words} {streams}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=settings(), capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert "nothing was run" not in result.stderr
    assert "Traceback" not in result.stderr
    said = "kernbench: cannot write the output: No space left on device; finished runs are in the log"
    assert (said in result.stderr.splitlines()) == ("2>" not in streams)
    assert words != "run -m loads" or "## 1 · loads" in (folder / "ITERATIONS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_end_nothing(folder: Path, streams: str) -> None:
    bench = f"{shlex.quote(sys.executable)} -m kernbench"
    command = f"({bench} run -m loads && {bench} diff 1 now && {bench} guide ci) {streams}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=settings(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, "internal error" in result.stderr) == (0, False)
    assert "## 1 · loads" in (folder / "ITERATIONS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", ["run", "log", "status"])
def test_a_current_folder_that_is_gone_is_named(tmp_path: Path, words: str) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && {shlex.quote(sys.executable)} -m kernbench {words}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=settings(), capture_output=True, text=True, timeout=60, check=False
    )
    said = "kernbench: the current folder was deleted; go to another one\n"
    assert (result.returncode, result.stderr) == (2, said)


def test_the_help_has_every_command_once_with_a_whole_line() -> None:
    modules = [import_module(found.name) for found in walk_packages(commands.__path__, "kernbench.commands.")]
    made = [command.name for module in modules for command in getattr(module, "COMMANDS", ())]
    assert sorted(made) == sorted(name for names in GROUPS.values() for name in names)
    text = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    assert "..." not in text.split("Examples:")[0].replace("[ARGS]...", "")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("name", "words"), [("run", "open run"), ("swish", "swish")])
def test_a_new_task_with_the_name_of_a_command_says_how_it_is_opened(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"`kernbench {words}` opens it" in CliRunner().invoke(cli, ["new", name]).stderr
