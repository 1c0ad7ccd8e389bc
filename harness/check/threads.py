"""Threads that a source leaves running: they would take part in every later measurement."""

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
"""Their threads are not a source's; torch.compile brings a monitor of tqdm's, too."""
POOLS = (*LIBRARIES, "concurrent", "multiprocessing")
LOOK_S = 0.05
"""Long enough for a busy thread to be charged a tick or more."""


class ThreadWatch:
    def __init__(self) -> None:
        self._known = set(threading.enumerate())  # not their numbers: those are given again
        self._native = set(_native_times())

    def at_work(self) -> bool:
        """Whether a Python thread that came later runs now; those of pools that wait for work do not count."""
        return any(frame is not None and not _idle(frame) for frame in self._new_frames())

    def left_running(self) -> Finding | None:
        """Python threads that are new, or native ones that are new and busy.

        Pools that wait for work do no harm: OpenMP's, those of the standard library, those of torch's compiler.
        """
        count = sum(1 for frame in self._new_frames() if not _of_a_pool(frame)) or self._busy()
        if not count:
            return None
        return findings.make("left_threads", threads=fmt.plural(count, "thread"))

    def _new_frames(self) -> list[FrameType | None]:
        """Where each new thread stands."""
        frames = sys._current_frames()
        return [frames.get(thread.ident or 0) for thread in threading.enumerate() if thread not in self._known]

    def _busy(self) -> int:
        before = {tid: ticks for tid, ticks in _native_times().items() if tid not in self._native}
        if not before:
            return 0
        time.sleep(LOOK_S)
        after = _native_times()
        return sum(1 for tid, ticks in before.items() if after.get(tid, 0) > ticks + 1)


def _idle(frame: FrameType) -> bool:
    """Whether a thread is not at work for a source: one of torch's, or one of a pool that waits for a task."""
    stack = _stack(frame)
    if any(name.startswith(SIDE_PREFIX) for name in stack):
        return False
    if any(name.partition(".")[0] in LIBRARIES for name in stack):
        return True
    return frame.f_code.co_name != "run" and _of_a_pool(frame)


def _of_a_pool(frame: FrameType | None) -> bool:
    """Whether a thread is in code of torch or of the standard library's pools."""
    return any(name.partition(".")[0] in POOLS for name in _stack(frame))


def _stack(frame: FrameType | None) -> list[str]:
    """Names of the modules that a thread is in, the innermost first."""
    names = []
    while frame is not None:
        names.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return names


def _native_times() -> dict[int, int]:
    """Processor ticks by native thread; empty where there is no /proc."""
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
