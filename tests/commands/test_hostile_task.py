"""Every command on a stranger's task: nothing but text leaves it, and nothing of the task or its repository runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import hostile
from tests.hostile import evil

JSON = [["status", "--json"], ["log", "--json"], ["doctor", "--json", "--python", "/bin/false"]]
EXPORTS = [["export", "--format", kind, "-o", "-"] for kind in ("md", "csv", "json", "html", "pr")]
LOOKING = [
    ["status"],
    ["log"],
    ["show", "1"],
    ["show", "7"],
    ["show", "1", "--source"],
    ["diff", "1", "now"],
    *EXPORTS,
    ["doctor", "--python", "/bin/false"],
    ["doctor", "--repo", "."],
    *JSON,
]
"""The guide's page about tasks promises that these run none of the task."""
OTHERS = [
    ["run", "--json"],
    ["run", "-m", evil("WORDS"), "--next", evil("STEP")],
    ["run", "--case", "none-such"],
    ["profile", "--case", "*"],
    ["port", "--to", "../other.py", "--dry-run", "--from", "1"],
    ["restore", "1"],
    ["drop", "7", "--yes"],
    ["show", evil("UNKNOWN")],
    ["new", "--from", evil("UNKNOWN"), "x"],
    ["log", evil("UNKNOWN")],
]
SHOWN = {
    "status": "NAME FOLDER",
    "log": "EDITED PULLED",
    "show 1": "MACHINE EDITED LABEL",
    "show 7": "PULLED GPU RESULT NEXT",
    "show 1 --source": "FILE REMARK",
    "diff 1 now": "FILE CHANGED",
    "export --format md -o -": "NAME SUMMARY LABEL PULLED",
    "export --format csv -o -": "CASE LABEL DEVICE CONDITION",
    "export --format json -o -": "CASE DEVICE",
    "export --format html -o -": "NAME SUMMARY LABEL PULLED",
    "export --format pr -o -": "NAME SUMMARY LABEL DEVICE",
    "doctor --repo .": "branch",
    "run --case none-such": "NAME CASE",
    "profile --case *": "CASE",
    "log --json": "EDITED",
    "run --json": "BROKEN",
}
"""Words of fields that a command must show, cleaned: else the test would see nothing."""


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository full of traps around a task with a log."""
    parent = tmp_path_factory.mktemp("stranger")
    folder = hostile.make_task(parent)
    hostile.written(folder, parent, [["run", "-m", "a thought"]])
    hostile.spoil_log(folder)
    hostile.change(folder)
    hostile.make_traps(parent)
    return parent


def folder_of(parent: Path) -> Path:
    return next(parent.glob("toy*"))


@dataclass(frozen=True)
class Looked:
    told: dict[str, bytes]
    sprung: list[str]


@pytest.fixture(scope="module")
def looked(parent: Path) -> Looked:
    hostile.touch_all(parent)
    traces(parent)
    told = hostile.written(folder_of(parent), parent, LOOKING, TERM="xterm-256color")
    return Looked(told, traces(parent))


@pytest.mark.parametrize("looking", [True, False], ids=["looking", "others"])
def test_commands_write_nothing_but_text(parent: Path, looked: Looked, looking: bool) -> None:
    told = looked.told if looking else hostile.written(folder_of(parent), parent, OTHERS, TERM="dumb")
    assert len(told) == len(LOOKING if looking else OTHERS)
    assert {words: found for words, raw in told.items() if (found := hostile.obeyed(raw))} == {}
    shown = {words: wanted for words, wanted in SHOWN.items() if words in told}
    missing = {
        words: [word for word in wanted.split() if word.encode() not in told[words]] for words, wanted in shown.items()
    }
    assert {words: lost for words, lost in missing.items() if lost} == {}
    for words, raw in told.items():
        if "--json" in words:
            lines = [line for line in raw.decode().splitlines() if line.startswith("{")]
            assert lines
            assert all(json.loads(line) for line in lines)
    if looking:
        assert b"\x1b[32m+" in told["diff 1 now"]  # our own codes still arrive


def traces(parent: Path) -> list[str]:
    trace = parent / hostile.TRACE
    found = trace.read_text().split("\n") if trace.exists() else []
    trace.unlink(missing_ok=True)
    return sorted(set(found) - {""})


def test_the_traps_work(parent: Path) -> None:
    """Else the next test would prove nothing."""
    hostile.touch_all(parent)
    traces(parent)
    look = ["git", "-C", str(parent), "status", "--porcelain"]
    subprocess.run(look, capture_output=True, timeout=30, check=False)
    sprung = traces(parent)
    assert any("core.fsmonitor" in name for name in sprung)
    assert any("filter.evil.clean" in name for name in sprung)
    count = ["git", "-C", str(parent), "rev-list", "--count", "HEAD...@{upstream}"]
    subprocess.run(count, capture_output=True, timeout=30, check=False)
    assert any("core.sshCommand" in name for name in traces(parent))
    imports = [sys.executable, "-c", "import torch"]
    subprocess.run(imports, cwd=folder_of(parent), capture_output=True, timeout=30, check=False)
    assert traces(parent) != []


def test_looking_at_a_task_runs_none_of_it(parent: Path, looked: Looked) -> None:
    assert looked.sprung == []
    assert b"not committed" in looked.told["doctor --repo ."]
    assert b"cannot compare with" in looked.told["doctor --repo ."]
    folder = folder_of(parent)
    traces(parent)
    offered = {"_KERNBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "kernbench log ", "COMP_CWORD": "2"}
    module = [sys.executable, "-m", "kernbench"]
    for words, more in ((["status"], {}), ([], offered)):
        given = hostile.environment(parent, **more)
        done = subprocess.run([*module, *words], cwd=folder, env=given, capture_output=True, timeout=60, check=False)
        assert b"Traceback" not in done.stderr
        assert (b"toy" in done.stdout) is (words == ["status"])  # no shell takes the name of this folder as it is
    assert traces(parent) == []


def test_what_the_kernel_says_is_text_in_the_log(tmp_path: Path) -> None:
    folder = hostile.make_task(tmp_path)
    hostile.change(folder)
    hostile.written(folder, tmp_path, [["run", "-m", evil("WORDS"), "--next", evil("STEP")]])
    raw = (folder / "ITERATIONS.md").read_bytes()
    assert hostile.obeyed(raw) == []
    text = raw.decode()
    assert all(word in text for word in ("WORDS", "STEP", "LABEL", "BROKEN", "BASE"))
    said = next(line for line in text.splitlines() if line.startswith("- result:"))
    assert "BROKEN" in said
    assert "\\<b>" in said
    assert "<b>" not in said.replace("\\<b>", "")
