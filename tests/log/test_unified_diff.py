"""A diff is applied by git byte for byte, whatever ends the lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernbench import export
from kernbench.log import stored_sources
from kernbench.log.runs.journal import Journal
from kernbench.log.unified_diff import NO_NEWLINE, unified
from tests.log.logs import add_to_source, make_log, source_hash

FILES = [
    (b"a = 1\nb = 2\n", b"a = 1\nb = 3\n"),
    (b"a = 1\r\nb = 2\r\n", b"a = 1\r\nb = 3\r\n"),
    (b"a = 1\r\nb = 2\r\n", b"a = 1\nb = 2\n"),
    (b"a = 1\nb = 2", b"a = 1\nb = 2\n"),
    (b"a = 1\nb = 2\n", b"a = 1"),
    (b"a = 1\nb = '\x0c'\n", b"a = 2\nb = '\x0c\xe2\x80\xa8'\n"),
    (b"a = 1 # \xfc\n", b"a = 2 # \xfc\n"),
    (None, b"a = 1\n"),
    (b"a = 1\n", None),
]


@pytest.mark.parametrize(("before", "after"), FILES)
def test_git_applies_the_change_of_a_pull_request(tmp_path: Path, before: bytes | None, after: bytes | None) -> None:
    task = make_log(tmp_path / "rms_norm", 2, cases=2)
    state = tmp_path / "rms_norm" / ".kernbench"
    for number, data in ((1, before), (2, after)):
        if data is not None:
            add_to_source(state, source_hash(number), "helper.py", data)
    export.export(task, state, "pr", tmp_path / "pr", before="1", after="2")
    tree = tmp_path / "tree"
    tree.mkdir()
    for file in stored_sources.find(task, Journal(state), "1").folder.iterdir():
        (tree / file.name).write_bytes(file.read_bytes())
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "apply", str(tmp_path / "pr" / "change.diff")], cwd=tree, check=True)
    assert ((tree / "helper.py").read_bytes() if (tree / "helper.py").exists() else None) == after


def test_a_last_line_that_is_not_ended_says_so() -> None:
    lines = list(unified(b"a\nb", b"a\nc", "1/x", "2/x"))
    assert lines == ["--- 1/x", "+++ 2/x", "@@ -1,2 +1,2 @@", " a", "-b", NO_NEWLINE, "+c", NO_NEWLINE]


def test_a_change_of_line_ends_alone_is_a_difference(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 2, cases=2)
    journal = Journal(tmp_path / "t" / ".kernbench")
    old = stored_sources.find(task, journal, "2")
    (tmp_path / "t" / "solution.py").write_bytes((old.folder / "solution.py").read_bytes().replace(b"\n", b"\r\n"))
    lines = stored_sources.diff(old, stored_sources.find(task, journal, "now"), task)
    assert "-STAGES = 2" in lines
    assert "+STAGES = 2\r" in lines
