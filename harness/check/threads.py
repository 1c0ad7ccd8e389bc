"""Detects threads that a source leaves running: they would disturb every later measurement."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType

from harness.load.failure import SIDE_PREFIX
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import Finding

LIBRARIES = ("torch", "triton", "tqdm")
"""Their threads do not belong to a source; torch.compile also starts a tqdm monitor."""
POOLS = (*LIBRARIES, "concurrent", "multiprocessing")
GLANCE_S, WORK_NS = 0.001, 30_000
"""A thread that runs for longer than that in so many seconds is at work."""
LOOK_S = 0.05
"""Long enough for a busy thread to be charged at least one tick."""


class ThreadWatch:
    def __init__(self) -> None:
        self._known = set(threading.enumerate())  # not their ids: those are reused
        self._native = set(_native_times())
        self._seen: set[threading.Thread] | None = None

    def at_work(self) -> bool:
        """Whether a source's thread has something to do. Idle pool threads have not, nor has one that was there at the
        last look and is waiting: for a queue, an event, a lock."""
        frames, seen = sys._current_frames(), self._seen
        busy = [(thread, frame) for thread in self._new() if (frame := frames.get(thread.ident or 0))]
        busy = [(thread, frame) for thread, frame in busy if not _idle(frame)]
        self.look()
        if any(_of_a_pool(frame) or (seen is not None and thread not in seen) for thread, frame in busy):
            return True
        before = {thread.native_id: _run_ns(thread.native_id) for thread, _frame in busy}
        if before:
            time.sleep(GLANCE_S)  # while this thread looks, others wait for the interpreter's lock
        return any(ns is None or (_run_ns(native) or ns) - ns > WORK_NS for native, ns in before.items())

    def look(self) -> None:
        """Remembers the threads that are there now."""
        self._seen = set(self._new())

    def _new(self) -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread not in self._known]

    def left_running(self) -> Finding | None:
        """New Python threads, or new native threads that are busy.

        Idle pools do no harm: those of OpenMP, of the standard library, and of torch's compiler.
        """
        count = sum(1 for frame in self._new_frames() if not _of_a_pool(frame)) or self._busy()
        if not count:
            return None
        return findings.make("left_threads", threads=fmt.plural(count, "thread"))

    def _new_frames(self) -> list[FrameType | None]:
        """The current frame of each new thread."""
        frames = sys._current_frames()
        return [frames.get(thread.ident or 0) for thread in self._new()]

    def _busy(self) -> int:
        before = {tid: ticks for tid, ticks in _native_times().items() if tid not in self._native}
        if not before:
            return 0
        time.sleep(LOOK_S)
        after = _native_times()
        return sum(1 for tid, ticks in before.items() if after.get(tid, 0) > ticks + 1)


def _run_ns(native: int | None) -> int | None:
    """How long a thread has run; None if the kernel does not say."""
    try:
        with open(f"/proc/self/task/{native}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _idle(frame: FrameType) -> bool:
    """Whether a thread is not working for a source: a library's thread, or an idle pool thread."""
    stack = _stack(frame)
    if any(name.startswith(SIDE_PREFIX) for name in stack):
        return False
    if any(name.partition(".")[0] in LIBRARIES for name in stack):
        return True
    return frame.f_code.co_name != "run" and _of_a_pool(frame)


def _of_a_pool(frame: FrameType | None) -> bool:
    """Whether a thread runs code of a library or of the standard library's pools."""
    return any(name.partition(".")[0] in POOLS for name in _stack(frame))


def _stack(frame: FrameType | None) -> list[str]:
    """Names of the modules on a thread's stack, innermost first."""
    names = []
    while frame is not None:
        names.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return names


def _native_times() -> dict[int, int]:
    """CPU ticks by native thread; empty without /proc."""
    times: dict[int, int] = {}
    try:
        names = os.listdir("/proc/self/task")
    except OSError:
        return times
    for name in names:
        try:
            with open(f"/proc/self/task/{name}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        times[int(name)] = int(fields[11]) + int(fields[12])
    return times
