"""Copies over SSH: to the terminal's clipboard by OSC 52, to tmux's buffer, and always to a file.

tmux ignores OSC 52 from programs by default, and some terminals do not support it: only the file is reliable.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.shared import format as fmt
from kernbench.task.lookup import make_state

LAST_COPY = "last-copy.md"
OSC_52_MOST = 74_994
"""Bytes of text that every terminal with OSC 52 accepts at once."""


def fits_terminal(text: str) -> bool:
    return len(text.encode()) <= OSC_52_MOST


def keep(text: str, what: str, state: Path, environ: Mapping[str, str]) -> str:
    """Write the text to the file and tmux's buffer; returns a sentence that says where it is. `what` names it."""
    path = state / LAST_COPY
    try:
        make_state(state)
        path.write_text(text, encoding="utf-8")
        kept, problem = [f"{path.parent.name}/{path.name}"], ""
    except OSError as reason:
        kept, problem = [], f"cannot write {path}: {reason.strerror}"
    places = ["the terminal's clipboard"] if fits_terminal(text) else []
    places += ["the tmux buffer"] if _to_tmux(text, environ) else []
    if not (places := [*places, *kept]):
        return f"could not copy {what}: {problem}"
    return f"copied {what} to {fmt.joined(places)}" + (f"; {problem}" if problem else "")


def _to_tmux(text: str, environ: Mapping[str, str]) -> bool:
    if not environ.get("TMUX"):
        return False
    try:
        command = ["tmux", "load-buffer", "-w", "-"]
        return subprocess.run(command, input=text.encode(), capture_output=True, timeout=2).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
