"""Whether a source leaves something when its call returns that the other side then runs under: a profile or trace
function, a mode of torch, another stream, a thread at work. `thread_limit_changed` is about the number of threads."""

from __future__ import annotations

import sys
import threading
from typing import Any

from harness.check.threads import ThreadWatch
from harness.private import process_state
from harness.shared import findings
from harness.shared.results import Finding

NAMES = ("a profile function", "a trace function", "a torch mode", "another stream")
OFTEN = 8
"""Threads are looked at after one of so many calls: it takes longer than the rest."""


class BetweenCalls:
    """Made before a source is loaded; asked after every call of it."""

    def __init__(self, threads: ThreadWatch) -> None:
        self._threads, self._before, self._alone = threads, _state(), threading.active_count()
        self._calls, self._left = 0, ""

    def look(self, is_solution: bool = True) -> None:
        """Takes a microsecond or two. Only what is there after a call of the solution counts."""
        self._calls += 1
        now = _state()
        if not is_solution:
            return
        if now != self._before:
            self._left = next(name for name, old, new in zip(NAMES, self._before, now, strict=True) if old != new)
        elif threading.active_count() > self._alone and self._calls % OFTEN == 0 and self._threads.at_work():
            self._left = "a running thread"

    def taken(self) -> Finding | None:
        """What was found since it was last asked."""
        left, self._left = self._left, ""
        return findings.make("left_set", what=left) if left else None


def _state() -> tuple[Any, ...]:
    return sys.getprofile(), sys.gettrace(), process_state.mode_depths(), process_state.cuda_current()
