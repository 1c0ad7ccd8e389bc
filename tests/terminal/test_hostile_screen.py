"""A stranger's task in a real terminal, from the picker to the prompt: tmux gets text and Textual's codes only."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import hostile
from tests.terminal.pane import Pane

pytestmark = [pytest.mark.tmux, pytest.mark.timeout(120)]
FORBIDDEN = re.compile(rb"\x1b\]|\x07|\x1b\[5m|\xc2[\x80-\x9f]|\x7f|\x08|\xe2\x80\xae")
"""A title, the clipboard, BEL, blinking, C1, DEL, backspace, a changed direction."""


class Recorded(Pane):
    """Everything that the program writes is also in a file."""

    def __init__(self, parent: Path) -> None:
        given = hostile.environment(parent)
        names = ("PYTHONPATH", "KERNBENCH_HARNESS", "XDG_CONFIG_HOME")
        shell = [
            "env",
            "-C",
            str(parent),
            *[f"{name}={given[name]}" for name in names],
            "PS1=$ ",
            "bash",
            "--norc",
            "-i",
        ]
        super().__init__(f"kernbench-hostile-{os.getpid()}", 160, 48, *shell)
        self.raw = parent.parent / "raw"
        self._tmux("set-option", "-g", "set-clipboard", "on")
        self._tmux("select-pane", "-T", "honest")
        self._tmux("pipe-pane", f"cat > {self.raw}")

    def title(self) -> str:
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def buffers(self) -> str:
        return self._tmux("list-buffers")


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    parent = tmp_path / "stranger"
    folder = hostile.make_task(parent)
    hostile.written(folder, parent, [["run", "-m", "a thought"]])
    hostile.spoil_log(folder)
    hostile.change(folder, "syntax")
    hostile.make_traps(parent)
    hostile.touch_all(parent)
    return parent


@pytest.fixture
def terminal(parent: Path) -> Iterator[Recorded]:
    opened = Recorded(parent)
    yield opened
    opened.close()


def test_the_screen_shows_nothing_but_text(terminal: Recorded, parent: Path) -> None:
    assert terminal.title() == "honest"
    terminal.press(f"{sys.executable} -P -m kernbench; echo left with $?", "Enter")
    terminal.until("choose a task")
    terminal.until("NAME")
    assert not (parent / hostile.TRACE).exists()  # nothing was opened yet
    terminal.press("Enter")
    terminal.until("BROKEN")
    for keys, shown in (("Enter", "AXIS"), ("x", "NEXT"), ("i Enter", "7 · PULLED")):
        terminal.press(*keys.split())
        terminal.until(shown, 20)
        terminal.press("Escape")
        terminal.until(rf"\A(?![\s\S]*{shown})", 20)  # esc and a letter in one go would be another key
    terminal.press("d")
    terminal.until("was not recorded here", 20)
    terminal.press("q")
    terminal.until("left with 0")
    assert terminal.title() == "honest"
    assert terminal.buffers() == ""
    raw = re.sub(rb"\x1b\]22;[a-z]+\x07", b"", terminal.raw.read_bytes())  # Textual sets the shape of the pointer
    assert b"SUMMARY" in raw
    assert [raw[max(found.start() - 40, 0) : found.end() + 20] for found in FORBIDDEN.finditer(raw)] == []
