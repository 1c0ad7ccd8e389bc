"""A tool that hangs, fails or is missing is a sentence, and leaves no process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernbench.machine import tool
from kernbench.machine.git import Git
from tests.sessions import gone


def test_a_tool_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    for seconds in (0.2, 2.0, 20.0):  # a busy machine may need longer to start it
        with pytest.raises(tool.ToolError, match=r"^sh did not finish within "):
            tool.answer(["sh", "-c", f"sleep 60 & echo $! > {child}; wait"], seconds)
        if child.exists() and child.read_text():
            break
    assert gone(int(child.read_text()))


def test_a_tool_that_fails_or_is_missing_says_so() -> None:
    with pytest.raises(tool.ToolError, match="sh failed: no license"):
        tool.answer(["sh", "-c", "echo no license >&2; exit 2"], 20.0)
    with pytest.raises(tool.ToolError, match="sh failed: exit code 3"):
        tool.answer(["sh", "-c", "exit 3"], 20.0)
    with pytest.raises(tool.ToolError, match="cannot start /nowhere/tool: No such file"):
        tool.answer(["/nowhere/tool"], 20.0)


def test_bytes_that_are_not_text_come_back_for_the_next_tool() -> None:
    name = tool.answer(["printf", r"a\377b"], 20.0)
    assert tool.answer(["printf", "%s", name], 20.0) == name == "a\udcffb"


def test_a_filter_that_cannot_be_switched_off_ends_the_question(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    git = Git(tmp_path)
    assert git.ask("init", "-q") == ""
    assert git.status() == ""
    (tmp_path / "file").write_text("1")
    assert git.ask("add", "file") == ""
    (tmp_path / ".gitattributes").write_text("* filter=a=b\n")
    assert git.ask("config", "filter.a=b.clean", f"touch {trace}; cat") == ""
    (tmp_path / "file").write_text("2")
    assert git.status() is None
    assert not trace.exists()
