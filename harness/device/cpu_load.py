"""How busy other programs keep the CPUs while a case is timed on one.

It is the CPU time that the whole machine spent meanwhile, less that of kernbench's own processes, per second. /proc
counts in ticks of 10 ms, so that is good to a few tenths of a CPU over a row's usual 100 ms.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from harness.device import own_processes

now = time.perf_counter  # saved before any user code can replace it
LEAST, LEAST_SHARE = 0.5, 0.1
"""A machine is busy if other programs use this many CPUs and this share of them: one of 64 hardly matters."""
SHORTEST_S = 0.05
"""Over less, a tick more or less would decide."""


class Load(NamedTuple):
    busy: float
    """CPUs that other programs kept busy."""
    cpus: int
    """CPUs that we may use; only those count."""

    @property
    def is_high(self) -> bool:
        return self.busy >= max(LEAST, LEAST_SHARE * self.cpus)


class _Reading(NamedTuple):
    at: float
    machine: float
    own: float


class CpuLoad:
    """Measures between `begin` and `end`; later rows know the processes that an earlier one found."""

    def __init__(self) -> None:
        self._cpus = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
        self._own = own_processes.find()
        self._begin = self._read()

    def begin(self) -> None:
        self._begin = self._read()

    def end(self) -> Load | None:
        """None if the time was too short or the system does not say."""
        passed = now() - self._begin.at
        load = self._load()
        if load is None or passed < SHORTEST_S:
            return None
        if load.is_high:  # or it is a process that we started since we last looked, such as a compiler
            self._own = own_processes.find()
            load = self._load()
        return load

    def _load(self) -> Load | None:
        before, after = self._begin, self._read()
        if not after.machine or after.at <= before.at:
            return None
        others = (after.machine - before.machine) - (after.own - before.own)
        return Load(min(max(others / (after.at - before.at), 0.0), len(self._cpus)), len(self._cpus))

    def _read(self) -> _Reading:
        own = sum(map(own_processes.cpu_seconds, self._own))
        return _Reading(now(), machine_seconds(self._cpus), own)


def machine_seconds(cpus: frozenset[int]) -> float:
    """CPU time that programs have spent on these CPUs since the start; 0 if the system does not say."""
    names = {f"cpu{number}" for number in cpus}
    try:
        with open("/proc/stat", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if line.startswith("cpu")]
    except OSError:
        return 0.0
    # user (with guests), nice, system; interrupts are not a program's
    return sum(int(spent) for name, *ticks in lines if name in names for spent in ticks[:3]) * own_processes.TICK
