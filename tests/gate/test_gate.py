"""`kernbench gate` over the fake harness: exit codes, second tries, reports; and once for real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from click.testing import CliRunner, Result

from kernbench.cli import cli
from tests import FAKE, ROOT
from tests.repositories import commit, git
from tests.sessions import write


@pytest.fixture
def task(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy task, committed; its solution takes 50 us."""
    git(folder.parent, "init", "-q", "-b", "main")
    commit(folder)
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("KERNBENCH_HARNESS", str(FAKE))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return folder


def gate(*words: str) -> Result:
    return CliRunner().invoke(cli, ["gate", "--against", "git:main", *words])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_nothing_to_run(task: Path) -> None:
    result = gate()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("passed: no task differs from main (")
    assert not (task / ".kernbench").exists()


def test_an_equal_rewrite_passes(task: Path) -> None:
    write(task, "TIME_US = 50.0\nEQUAL = 1")
    result = gate()
    assert result.exit_code == 0, result.output
    assert "passed against main (" in result.stdout.splitlines()[-1]
    assert result.stdout.count("1.000x") == 3
    assert "3 other cases passed" in result.stdout
    assert git(task, "status", "--porcelain").split() == ["M", "toy/solution.py"]
    assert not (task / "ITERATIONS.md").exists()
    assert {path.name for path in (task / ".kernbench").iterdir()} == {".gitignore", "gate"}


def test_a_slower_row_fails_after_a_second_try(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(task, "TIME_US = 55.0")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    result = gate("--junit", str(tmp_path / "out" / "junit.xml"))
    assert result.exit_code == 1
    assert result.stdout.count("slower, twice") == 3
    assert result.stdout.splitlines()[-1].endswith("3 slower, 3 rows of 1 task passed: toy a 16x16, toy b, toy c")
    suite = Xml.parse(tmp_path / "out" / "junit.xml").getroot()[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "6",
        "failures": "3",
        "errors": "0",
    }
    failures = suite.findall("testcase/failure")
    assert [item.get("message") for item in failures] == ["slower: 0.909x ±0.1%"] * 3
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("before\n### kernbench gate: failed against main (")
    assert "| a 16x16 | 50.00 | 55.00 | 0.909x ±0.1% | slower, twice |  |" in summary


def test_noise_is_never_a_pass(task: Path) -> None:
    write(task, "TIME_US = 50.0\nSPREAD = 0.2")
    result = gate("--json")
    assert result.exit_code == 4
    *rows, about, last = lines(result)
    assert [(row["word"], row["tries"]) for row in rows[:3]] == [("cannot tell", 2)] * 3
    assert (about["word"], last["word"], last["exit"]) == ("cannot tell", "cannot tell", 4)
    assert gate("--tolerance", "30%").exit_code == 0


def test_a_larger_budget_may_tell(task: Path) -> None:
    write(task, "TIME_US = 50.0\nSPREAD = 0.2\nSPREAD_MS = 500.0")
    result = gate("--json")
    assert result.exit_code == 0, result.output
    assert [(row["word"], row["tries"]) for row in lines(result)[:3]] == [("pass", 2)] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('DO = "wrong"\nON = "b"', "WRONG: out differs at [0]: got 1, expected 2"),
        ('DO = "syntax"', "solution.py:3: invalid syntax"),
    ],
)
def test_a_wrong_row_fails(task: Path, text: str, said: str) -> None:
    write(task, text)
    result = gate("toy")
    assert result.exit_code == 1
    assert f"    {said}" in result.stdout
    assert "1 wrong" in result.stdout.splitlines()[-1]


def test_a_broken_and_a_new_task(task: Path) -> None:
    shutil.copytree(task, task.parent / "new")
    write(task.parent / "new", "TIME_US = 500.0")
    (task / "task.toml").write_text("entry = 3\n")
    result = gate("--json")
    found = {line["task"]: (line["new"], line["word"]) for line in lines(result) if line["event"] == "task"}
    assert (result.exit_code, found) == (1, {"toy": (False, "wrong"), "new": (True, "pass")})


def test_without_a_gpu_it_checks_what_it_can(task: Path) -> None:
    (task / "task.toml").write_text((task / "task.toml").read_text().replace('"cpu"', '"cuda"'))
    result = gate()
    assert result.exit_code == 0, result.output
    assert "not timed: 3 (needs a GPU" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("passed as far as it can be checked here against main (")
    assert "3 not timed, 3 rows of 1 task passed" in result.stdout


def test_without_a_gpu_nothing_checked_is_no_pass(task: Path) -> None:
    (task / "task.toml").write_text((task / "task.toml").read_text().replace('"cpu"', '"cuda"'))
    result = gate("--case", "a")
    assert result.exit_code == 4, result.output
    assert result.stdout.splitlines()[-1].startswith("cannot tell against main (")
    assert "needs a GPU" in result.stdout


def test_two_environments_have_a_table_each(task: Path, tmp_path: Path) -> None:
    second = tmp_path / "python"
    second.symlink_to(sys.executable)
    write(task, "TIME_US = 50.0\nEQUAL = 1")
    result = gate("--json", "--python", sys.executable, "--python", str(second))
    assert result.exit_code == 0, result.output
    found = [line["python"] for line in lines(result) if line["event"] == "task"]
    assert found == [sys.executable, str(second)]


def test_a_missing_device_is_an_error(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_UNUSABLE", "1")
    result = gate("toy")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "there is no device cuda:7 here" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--against", "main"], "main is not a revision such as git:origin/main"),
        (["--against", "git:nope"], "git has no revision 'nope'"),
        (["--tolerance", "much"], "much is not a slowdown such as 3%"),
        (["--tolerance", "0%"], "0% is not a slowdown such as 3%"),
        (["--junit", "toy/solution.py"], "toy/solution.py exists and is not XML"),
        (["--junit", "fifo"], "fifo exists and is not XML"),
        (["--junit", "/proc/self/x/junit.xml"], "cannot write /proc/self/x/junit.xml: No such file or directory"),
        (["--summary", "/proc/self/x/summary.md"], "'/proc/self/x/summary.md': No such file or directory"),
        (["nothing"], "no task 'nothing' here"),
        (["toy", "--case", "z"], "no case of toy matches 'z'"),
    ],
)
def test_mistakes_are_one_sentence(task: Path, words: list[str], said: str) -> None:
    os.mkfifo("fifo")
    result = gate(*words)
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)
    assert not (task / ".kernbench" / "gate").exists()


@pytest.mark.parametrize(("spent", "code"), [(50, 2), (55, 1)])
def test_a_summary_that_cannot_be_written_hides_no_verdict(
    task: Path, spent: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(task, f"TIME_US = {spent}.0\nOTHER = 1")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    result = gate()
    assert result.exit_code == code
    assert "against main (" in result.stdout.splitlines()[-1]
    assert result.stderr.splitlines()[-1] == "kernbench: cannot write /dev/full: No space left on device"


def test_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of C++ on this CPU that does its work so often that no busy machine hides it."""
    folder = tmp_path / "softmax_host"
    shutil.copytree(ROOT / "kernels" / "softmax_host", folder, ignore=shutil.ignore_patterns(".*", "*.md"))
    commit(folder)
    path = folder / "solution.py"
    path.write_text(path.read_text().replace("    _lib.softmax", "    for _ in range(40): _lib.softmax"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNBENCH_HARNESS", raising=False)
    result = CliRunner().invoke(
        cli, ["gate", "--against", "git:HEAD", "--case", "*2048x64", "--budget", "20", "--json", "softmax_host"]
    )
    row = lines(result)[0]
    assert (result.exit_code, row["word"], row["tries"]) == (1, "slower", 2), result.output


def test_the_guide_s_bisect_finds_the_commit(task: Path) -> None:
    git(task, "tag", "v1.2")
    for number, spent in enumerate((50, 50, 70, 70)):
        write(task, f"TIME_US = {spent}.0\nNUMBER = {number}")
        commit(task, f"number {number}")
    page = (ROOT / "src" / "kernbench" / "guide" / "ci.md").read_text()
    script = next(part for part in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "bisect" in part)
    place = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", script.replace("softmax_host", "toy")],
        cwd=task.parent,
        env={**os.environ, "PATH": place},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "is the first bad commit" in done.stdout, done.stdout + done.stderr
    assert "number 2" in git(task, "log", "-1", "--format=%s", "refs/bisect/bad")
