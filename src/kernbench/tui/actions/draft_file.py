"""The hypothesis that no run has used yet, kept with the runs until the next start."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kernbench.task.lookup import make_state

FILE = "next-hypothesis.txt"


def read(state: Path) -> str:
    try:
        return (state / FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def keep(state: Path, text: str) -> None:
    """Empty text deletes the draft. A write error is ignored: it loses only the draft."""
    if text == read(state):
        return
    with contextlib.suppress(OSError):
        if text:
            make_state(state)
            (state / FILE).write_text(text + "\n", encoding="utf-8")
        else:
            (state / FILE).unlink(missing_ok=True)
