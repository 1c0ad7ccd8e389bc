"""Blocks, stop rule and clocks.

All sides of a case are timed in one pass: a block holds a few calls of every side, and the order of sides turns round
from block to block (ABBA), so that slow drifts cancel in the block's ratios. A clock measures a list of calls, each
with an untimed preparation and a timed part; that is all it knows, and another clock can take its place.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from harness import stats
from harness.records import ClockName
from harness.rotation import Rotation, WorkingSet

MIN_BLOCKS = max(8, stats.FEWEST_BLOCKS)
MAX_BLOCKS = 400
MAX_CALLS = 32
"""Calls of one side in a block."""
GOAL_BLOCKS = 32
"""Blocks that the budget is divided into."""
LONG_CALL_US = 300.0
LONG_BUDGET = 2.0
"""How much more budget a long call gets."""


_now = time.perf_counter_ns  # taken before any user code can replace it


def clock_replaced() -> bool:
    """Whether somebody has put another function in the clock's place since this module was loaded."""
    return time.perf_counter_ns is not _now


HEAD_START_CYCLES = 200_000
"""The GPU waits this long before a flush, so that the host has launched the call by the time the flush is over."""


class SideFailed(Exception):
    """A call of one side raised while it was timed; what it raised is the cause."""

    def __init__(self, side: str) -> None:
        super().__init__(f"{side} failed while it was timed")
        self.side = side


class Call(NamedTuple):
    prepare: Callable[[], None] | None
    run: Callable[[], Any]


class Clock(Protocol):
    name: ClockName

    def measure(self, calls: Sequence[Call]) -> list[float]:
        """Microseconds of each call's run."""


class WallClock:
    """Host time of one call."""

    name: ClockName = "wall"

    def measure(self, calls: Sequence[Call]) -> list[float]:
        now, times = _now, []
        for call in calls:
            if call.prepare is not None:
                call.prepare()
            run = call.run
            start = now()
            result = run()
            end = now()
            del result  # freed outside the timed span, before the next call allocates
            times.append((end - start) / 1000)
        return times


class EventClock:
    """CUDA event pairs after a flush that reads twice the L2."""

    name: ClockName = "events"

    def __init__(self) -> None:
        import torch

        from harness import machine

        self._torch: Any = torch
        self._flush = torch.zeros(2 * machine.gpu_cache() // 4, dtype=torch.float32, device="cuda")

    def measure(self, calls: Sequence[Call]) -> list[float]:
        event: Any = self._torch.cuda.Event
        pairs = []
        for call in calls:
            if call.prepare is not None:
                call.prepare()
            self._torch.cuda._sleep(HEAD_START_CYCLES)
            self._flush.sum()
            start, end = event(enable_timing=True), event(enable_timing=True)
            start.record()
            call.run()
            end.record()
            pairs.append((start, end))
        self._torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1000 for start, end in pairs]


@dataclass
class Timing:
    """Samples of one case: microseconds per block and side."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    """Processors that a side kept busy on average, over all threads of the process."""
    last: tuple[Any, WorkingSet] | None = None
    """What the solution returned from one more measured call, at an address it knows with other values, and those."""

    def time_us(self, side: str) -> float | None:
        values = self.samples.get(side)
        return stats.interquartile_mean(values) if values else None

    def log_ratios(self, over: str, under: str) -> list[float]:
        return [math.log(a / b) for a, b in zip(self.samples[over], self.samples[under], strict=True)]

    @property
    def blocks(self) -> int:
        return len(next(iter(self.samples.values()), []))


Sides = dict[str, Callable[..., Any]]


@dataclass
class Bench:
    """Times the sides of one case against each other; `beat` is called between blocks and may raise to stop."""

    clock: Clock
    rotation: Rotation
    budget_ms: float
    beat: Callable[[], None]
    candidate: str = "solution"

    def run(self, sides: Sides) -> Timing:
        with _quiet():
            calls = self._warm_up(sides)
            timing = self._blocks(sides, calls)
            timing.last = self._one_more(sides[self.candidate])
        return timing

    def _warm_up(self, sides: Sides) -> int:
        """Two calls of each side; the faster ones say how many calls a block holds."""
        slowest = 0.0
        for name in sides:
            slowest = max(slowest, min(self._measure(sides, name, 2)))
        if slowest > LONG_CALL_US:
            self.budget_ms *= LONG_BUDGET
        fitting = self.budget_ms * 1000 / GOAL_BLOCKS / len(sides) / max(slowest, 0.1)
        return max(1, min(MAX_CALLS, int(fitting)))

    def _blocks(self, sides: Sides, calls: int) -> Timing:
        timing = Timing({name: [] for name in sides})
        order = list(sides)
        used, passed = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0)
        began = time.perf_counter()
        while timing.blocks < MAX_BLOCKS:
            self.beat()
            self.rotation.begin_block()
            for name in order:
                passed[name] -= time.perf_counter()
                used[name] -= time.process_time()
                timing.samples[name].append(max(stats.interquartile_mean(self._measure(sides, name, calls)), 1e-3))
                used[name] += time.process_time()
                passed[name] += time.perf_counter()
            order.reverse()
            if timing.blocks >= MIN_BLOCKS and (self._sure(timing) or _spent(began, self.budget_ms)):
                break
        timing.busy = {name: used[name] / passed[name] for name in sides if passed[name] > 0}
        return timing

    def _sure(self, timing: Timing) -> bool:
        others = [name for name in timing.samples if name != self.candidate]
        if not others:
            return timing.blocks >= GOAL_BLOCKS
        return all(stats.half_width(timing.log_ratios(name, self.candidate)) <= stats.WIDTH_GOAL for name in others)

    def _measure(self, sides: Sides, name: str, count: int) -> list[float]:
        function, calls = sides[name], []
        for _ in range(count):
            working = self.rotation.take()
            calls.append(Call(working.restore, _bound(function, working)))
        try:
            return self.clock.measure(calls)
        except BaseException as problem:
            raise SideFailed(name) from problem

    def _one_more(self, function: Callable[..., Any]) -> tuple[Any, WorkingSet]:
        """Two measured calls like the others, on one set with its values changed in between; the second's result."""
        working = self.rotation.take()
        self.clock.measure([Call(working.restore, _bound(function, working))])
        working = self.rotation.refill(working)
        kept: list[Any] = []
        bound = _bound(function, working)
        self.clock.measure([Call(working.restore, lambda: kept.append(bound()))])
        return kept[0], working


def _bound(function: Callable[..., Any], working: WorkingSet) -> Callable[[], Any]:
    inputs = working.inputs
    return lambda: function(**inputs)


def _spent(began: float, budget_ms: float) -> bool:
    return (time.perf_counter() - began) * 1000 >= budget_ms


@contextmanager
def _quiet() -> Any:
    """No garbage collection inside a timed span."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def floor(bench: Callable[[], Bench], function: Callable[..., Any], runs: int = 4) -> float:
    """A/A floor: how far the same function comes apart from itself."""
    ratios = []
    for _ in range(runs):
        timing = bench().run({"baseline": function, "solution": function})
        ratios.append(math.exp(stats.interquartile_mean(timing.log_ratios("baseline", "solution"))))
    return stats.floor_of(ratios)
