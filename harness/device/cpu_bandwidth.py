"""The memory bandwidth of a CPU task's threads, and the time below which a row did not read its inputs.

Inputs are rotated over twice the last-level cache (timing/input_sets.py), so a call reads them from memory, in the
order in which the measurement here reads as many bytes. The bound is far below what an honest row reaches: only inputs
that are rotated count, each element once; the bandwidth is the best of copies, counted in both directions, and of two
kinds of reads; of the time that it allows only 70% is required; and where the baseline is as fast, the bytes are
wrong, not the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from harness.device import environment, roofline
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import Finding

now, cpu_time = time.perf_counter_ns, time.process_time_ns  # saved before any user code can replace them
SHARE = 0.7
LEAST_READ = 256 << 10
"""Bytes; less is read in the time that a call takes anyway."""
LARGEST = 128 << 20
"""Bytes of a buffer. On a larger cache it measures that cache, which is faster than memory and so on the safe side."""
ROUNDS, TRIES = 3, 3


class CpuBandwidth:
    """Bytes per second that this worker's threads reached at best; measured when first needed, again in doubt."""

    def __init__(self, measure: Callable[[], float] | None = None) -> None:
        self._measure = measure or best_rate
        self._best: dict[int, float] = {}
        """By number of threads."""

    def impossible(
        self, traffic: roofline.Traffic, rotated: int, solution_us: float, baseline_us: float | None
    ) -> Finding | None:
        """The finding if a row took less time than reading its inputs takes; `rotated` is the bytes of those inputs
        that no call finds in the cache."""
        read = min(traffic.read, float(rotated))
        reached = read / (baseline_us * 1e-6) if baseline_us else 0.0
        if read < LEAST_READ or not self._is_below(read, solution_us, reached):
            return None
        threads = torch.get_num_threads()
        for _ in range(TRIES):  # another program may have slowed a measurement down
            if threads not in self._best or self._is_below(read, solution_us, self._best[threads]):
                self._best[threads] = max(self._best.get(threads, 0.0), self._measure())
        if not self._is_below(read, solution_us, self._best[threads]):
            return None
        floor_us = SHARE * read / self._best[threads] * 1e6
        return findings.make("impossible_time", us=fmt.microseconds(solution_us), floor_us=fmt.microseconds(floor_us))

    @staticmethod
    def _is_below(read: float, us: float, rate: float) -> bool:
        return us * 1e-6 * rate < SHARE * read


def best_rate() -> float:
    """Bytes per second of the fastest of several copies and reads, with the number of threads that torch has now."""
    size, threads = min(2 * environment.last_level_cache(), LARGEST), torch.get_num_threads()
    source, target = (torch.ones(size // 4, dtype=torch.float32, device="cpu") for _ in range(2))
    ways: tuple[tuple[int, Callable[[], Any]], ...] = (
        (2 * size, lambda: target.copy_(source)),
        (size, lambda: torch.sum(source)),
        (size, lambda: torch.dot(source, source)),
    )
    best = 0.0
    for moved, run in ways * ROUNDS:
        began, used = now(), cpu_time()
        run()
        spent = min(now() - began, (cpu_time() - used) / threads)  # not the time in which another program had the CPU
        best = max(best, moved / max(spent, 1) * 1e9)
    return best
