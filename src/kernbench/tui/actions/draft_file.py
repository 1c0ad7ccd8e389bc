"""The hypothesis that no run has used yet, kept with the runs until the next start."""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.shared.regular_file import NotRegular, read_text
from kernbench.atomic_write import written_aside
from kernbench.task.lookup import make_state

FILE = "next-hypothesis.txt"
LARGEST = 1 << 20


def read(state: Path) -> str:
    try:
        return read_text(state / FILE, LARGEST).strip()
    except (OSError, UnicodeDecodeError, NotRegular):
        return ""


def keep(state: Path, text: str) -> None:
    """Empty text deletes the draft. A write error is ignored: it loses only the draft."""
    if text == read(state):
        return
    with contextlib.suppress(OSError):
        if text:
            make_state(state)
            with written_aside(state / FILE, f"{text}\n".encode()) as move:  # never waits, as a fifo would
                move()
        else:
            (state / FILE).unlink(missing_ok=True)
