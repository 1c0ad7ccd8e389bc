"""Threads that a source leaves running: they would take part in every later measurement."""

from __future__ import annotations

import os
import threading
import time

from harness.records import Finding

LOOK_S = 0.05
"""Long enough for a busy thread to be charged a tick or more."""


class ThreadWatch:
    def __init__(self) -> None:
        self._known = {thread.ident for thread in threading.enumerate()}
        self._native = set(_native_times())

    def left_running(self) -> Finding | None:
        """Python threads that are new, or native ones that are new and busy (idle pools, as OpenMP's, are no harm)."""
        new = [thread for thread in threading.enumerate() if thread.ident not in self._known and thread.is_alive()]
        count = len(new) or self._busy()
        if not count:
            return None
        threads = "1 thread" if count == 1 else f"{count} threads"
        text = f"{threads} of the source still ran after its last call; join them before returning"
        return Finding("left threads running", text)

    def _busy(self) -> int:
        before = {tid: ticks for tid, ticks in _native_times().items() if tid not in self._native}
        if not before:
            return 0
        time.sleep(LOOK_S)
        after = _native_times()
        return sum(1 for tid, ticks in before.items() if after.get(tid, 0) > ticks + 1)


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
