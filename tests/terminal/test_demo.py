"""The demo in a real terminal: a good save, then everything a kernel can do wrong, then a good save again."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.terminal.pane import Pane

SHIPPED = ROOT / "kernels" / "softmax_host"
pytestmark = [pytest.mark.tmux, pytest.mark.timeout(300)]


class Terminal(Pane):
    """The workbench with short deadlines."""

    def __init__(self, folder: Path, width: int, height: int) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        words = f"{sys.executable} -m kernbench {folder} --deadline build=20 --deadline check=12"
        command = f"PYTHONPATH={path} {words}; echo left with $?; sleep 60"
        super().__init__(f"kernbench-test-{os.getpid()}", width, height, command)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "softmax_host"
    shutil.copytree(SHIPPED, place, ignore=shutil.ignore_patterns(".kernbench", "ITERATIONS.md", "__pycache__"))
    return place


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    opened = Terminal(folder, 80, 24)
    yield opened
    opened.close()


def test_a_day_at_the_workbench(terminal: Terminal, folder: Path) -> None:
    good_cpp, good_py = (folder / "solution.cpp").read_text(), (folder / "solution.py").read_text()

    def cpp(old: str, new: str) -> None:
        assert old in good_cpp
        (folder / "solution.cpp").write_text(good_cpp.replace(old, new))

    def python(line: str) -> None:
        (folder / "solution.py").write_text(good_py.replace("    out = ", f"    {line}\n    out = "))

    terminal.until(r"passed[\s\S]*#1 ")
    terminal.press("h")
    terminal.until("enter: save")
    terminal.press("m[f32] in fewer steps", "Enter")
    cpp("double sum = 0.0;", "double sum = 0.0; // as before\n        (void)row;")
    terminal.until(r"passed[\s\S]*#2 ")
    terminal.press("i")
    terminal.until(r"2 .* m\[f32\] in fewer steps")
    terminal.press("1")
    terminal.until("base us")

    cpp("double sum = 0.0;", "double sum = 0.0")
    terminal.until(r"solution\.cpp:\d+: expected")
    cpp("*= scale", "*= 1.01f * scale")
    terminal.until(r"#3 [^\n]*35 wrong")
    cpp("float largest = from[0];", "float largest = from[0]; *(volatile int *)8 = 1;")
    assert "solution.cpp:43" in terminal.until(r"crashed .*segfaulted")
    terminal.until("  #4 ")  # a newer save would end the run before it is an iteration
    cpp("float largest = from[0];", "float largest = from[0]; for (volatile int k = 0; k < 1;) k = 0;")
    terminal.until(r"timeout .*timed out after")
    terminal.until("  #5 ")
    (folder / "solution.cpp").write_text(good_cpp)
    python("raise SystemExit(3)")
    terminal.until(r"error .*it called sys.exit")
    terminal.until("  #6 ")
    python('print(("x" * 99 + chr(10)) * 10_000)')
    terminal.until(r"passed[\s\S]*#7 ", 90)
    terminal.press("5")
    terminal.until(r"more lines .* dropped")
    terminal.press("1")
    (folder / "solution.py").write_text(good_py)
    terminal.until(r"passed[\s\S]*#8 ", 90)

    log = (folder / "ITERATIONS.md").read_text()
    assert [int(number) for number in re.findall(r"^## (\d+) ·", log, re.MULTILINE)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "- hypothesis: m[f32] in fewer steps\n" in log
    assert "after 1 failed build" in log
    assert "same source as 1" in log
    terminal.press("q")
    terminal.until("left with 0")
