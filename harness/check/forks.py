"""Ends a copy of the worker that a source forked once it comes back into the harness, and reports it.

Such a copy would answer the request a second time, and compete with what is timed. A child that runs another program,
or that exits by itself as multiprocessing's do, never comes back.
"""

from __future__ import annotations

import mmap
import os
import sys
from types import FrameType
from typing import Any, NoReturn

from harness.load.failure import SIDE_PREFIX
from harness.shared import findings
from harness.shared.results import Finding

getpid, _exit = os.getpid, os._exit
_HARNESS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OPPONENTS = tuple(f"{SIDE_PREFIX}{role}_" for role in ("baseline", "best", "reference"))
_came_back = mmap.mmap(-1, 1)
"""Shared with every copy."""
_blames_the_solution = True
"""In a copy: it was not the best or the baseline that forked."""


def install() -> None:
    os.register_at_fork(after_in_child=_follow)


def leave() -> NoReturn:
    """End this copy without a word: the pipes are the worker's."""
    _came_back[0] |= _blames_the_solution
    _exit(0)


def came_back() -> Finding | None:
    """Whether a copy came back since the last call."""
    found, _came_back[0] = _came_back[0], 0
    return findings.make("forked") if found else None


def _follow() -> None:
    """In the child: note who forked, and wait for the return."""
    global _blames_the_solution
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _module(frame).startswith(SIDE_PREFIX):
        frame = frame.f_back
    _blames_the_solution = frame is None or not _module(frame).startswith(_OPPONENTS)
    sys.setprofile(_look)


def _look(frame: FrameType, event: str, _value: Any) -> None:
    if event == "call" and frame.f_code.co_name == "_bootstrap" and _module(frame) == "multiprocessing.process":
        sys.setprofile(None)
    elif event == "return" and _in_harness(frame.f_back) and not _in_harness(frame):
        leave()


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _in_harness(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_HARNESS)
