"""Times steps in turns: every side makes one step per round, in a new order each time.

Wall time, and on a GPU up to the end of its work: a model waits for its host as well. The step as it is takes part
twice; how far it is from itself is the A/A floor.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from harness.device.gpu import Gpu, locked
from harness.shared import stats
from harness.timing.blocks import quiet
from harness.timing.clocks import Call, WallClock
from harness.timing.samples import Timing
from harness.transfer.step_sides import StepSide

PER_BLOCK = 3
"""Rounds in a block."""
PARTS = 4
"""Of the rounds, each with its own A/A ratio, as far as they suffice."""
AGAIN = "again"
"""The step as it is, a second time."""


@dataclass
class Meter:
    """The SM clock and the power right after each step of a side, and its largest peak of allocated memory."""

    gpu: Gpu | None
    mhz: dict[str, list[float]] = field(default_factory=dict)
    watts: dict[str, list[float]] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Before a step."""
        import torch

        if self.gpu is not None:
            torch.cuda.reset_peak_memory_stats()

    def look(self, side: str) -> None:
        if self.gpu is None:
            return
        import torch

        if "graph" not in side:  # a replay allocates nothing: its memory is in the graph's own pool
            self.peak_mb[side] = max(self.peak_mb.get(side, 0.0), torch.cuda.max_memory_allocated() / 2**20)
        for kept, value in ((self.mhz, self.gpu.nvml.state().sm_mhz), (self.watts, self.gpu.nvml.watts())):
            if value is not None:
                kept.setdefault(side, []).append(value)


def timed(sides: Sequence[StepSide], rounds: int, gpu: Gpu | None, meter: Meter, beat: Callable[[int], None]) -> Timing:
    """Samples of every side; the first is the step as it is, and is also timed as AGAIN."""
    taking_part = [*((side.name, side) for side in sides), (AGAIN, sides[0])]
    lot, found = random.Random(rounds), []
    for number in range(rounds):
        beat(number)
        order = list(taking_part)
        lot.shuffle(order)
        with turn(gpu), quiet():  # round by round: a save elsewhere waits for one at most
            found.append({name: _one(name, side, gpu, meter) for name, side in order})
    blocks = [found[place : place + PER_BLOCK] for place in range(0, len(found) - PER_BLOCK + 1, PER_BLOCK)]
    turns = [{name: tuple(one[name] for one in block) for name, _ in taking_part} for block in blocks]
    samples = {name: tuple(one[name] for one in found) for name, _ in taking_part}
    return Timing(samples, tuple(MappingProxyType(block) for block in turns))


def floor(timing: Timing, name: str) -> float:
    """How far the step as it is deviates from itself."""
    blocks = timing.rounds
    parts = max(1, min(PARTS, len(blocks) // stats.FEWEST_BLOCKS))
    size = len(blocks) // parts
    found = [Timing(rounds=blocks[place * size : (place + 1) * size]).estimate(name, AGAIN) for place in range(parts)]
    return stats.floor_of([math.exp(estimate.centre) for estimate in found if estimate is not None])


def _one(name: str, side: StepSide, gpu: Gpu | None, meter: Meter) -> float:
    """Microseconds of one step."""
    wait = _synchronize(gpu)

    def run() -> Any:
        result = side.run()
        wait()
        return result

    def prepare() -> None:
        side.begin()
        meter.begin()
        wait()

    try:
        measured = WallClock().measure([Call(prepare, run, name)])[0].us
    finally:
        side.end()
    meter.look(name)
    return measured


def _synchronize(gpu: Gpu | None) -> Callable[[], None]:
    import torch

    return (lambda: None) if gpu is None else torch.cuda.synchronize


def turn(gpu: Gpu | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if gpu is None else locked(gpu.uuid)
