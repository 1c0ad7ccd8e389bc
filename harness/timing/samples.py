"""What was measured of one case: times by side and block, and the ratios that they give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.device.activity import Activity
from harness.shared import stats
from harness.shared.results import Ratio
from harness.timing.input_sets import WorkingSet

JITTER_US = 0.004
"""Times on the same tick of a GPU's clock are told a nanosecond or two apart: 2.144, 2.145, 2.175, 2.176 us."""
EVENLY = ((math.sqrt(5) - 1) / 2, math.sqrt(2))
"""Multiples of these, less their whole parts, fill the unit interval evenly from the first on; the two are as good as
independent, so that differences do not tie either."""


@dataclass
class Timing:
    """Samples of one case: microseconds per block and side."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    """A time is the robust mean of its calls; where two take turns, the candidate has some with every other."""
    rounds: list[dict[str, list[float]]] = field(default_factory=list)
    """By block the times of every side's calls, where they take turns call by call: the n-th ones are a round."""
    activities: dict[str, list[Activity]] = field(default_factory=dict)
    """What every timed call of a side put on the device, where the clock knows."""
    busy: dict[str, float] = field(default_factory=dict)
    """Processors that a side kept busy on average, over all threads; only where a batch is one block."""
    dropped: int = 0
    """Blocks thrown away because the GPU was throttled."""
    unsteady: str | None = None
    """Why blocks were dropped."""
    last: tuple[Any, WorkingSet] | None = None
    """What the solution returned from one more measured call, at an address it knows with other values, and those."""

    def time_us(self, side: str) -> float | None:
        values = self.samples.get(side)
        return stats.interquartile_mean(values) if values else None

    def estimate(self, over: str, under: str) -> stats.Estimate | None:
        """How much faster one side is than another; none while there are too few blocks."""
        if self.rounds:
            blocks = [block for block in self.rounds if over in block and under in block]
            return _of_turns([(block[over], block[under]) for block in blocks])
        return stats.of_blocks(_log_ratios(self.samples[over], self.samples[under]))

    def ratio(self, over: str, under: str, margin: float) -> Ratio | None:
        return stats.ratio(self.estimate(over, under), margin)

    @property
    def blocks(self) -> int:
        """Of the side that has the fewest: the candidate takes turns with every other."""
        return min(map(len, self.samples.values()), default=0)


def _log_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(over, under, strict=True)]


def _of_turns(blocks: Sequence[stats.Turns]) -> stats.Estimate | None:
    """Neighbours in time are compared: what disturbs one disturbs the other.

    Times that fall on one tick of the clock are spread evenly over it: where many tie, one call more or less would move
    what trimming leaves by a whole tick, and the interval would not know. Each side has a tick of its own: the sum of
    many kernels lies on no grid.
    """
    sides = [[time for block in blocks for time in block[side]] for side in (0, 1)]
    if not sides[1]:
        return None
    ticks = [min(_steps(times), default=0.0) for times in sides]
    ticks = [tick or max(ticks) for tick in ticks]  # where one side ties throughout, the other's
    spread = [itertools.count(0, step) for step in EVENLY]

    def logs(times: Sequence[float], side: int) -> list[float]:
        tick, place = ticks[side], spread[side]
        # a call that did nothing took next to no time, and cannot be spread by more
        return [math.log(time + min(tick, time) * (next(place) % 1 - 0.5)) for time in times]

    turns = [(logs(over, 0), logs(under, 1)) for over, under in blocks]
    return stats.of_rounds(turns, max(tick / stats.median(times) for tick, times in zip(ticks, sides, strict=True)))


def _steps(times: Sequence[float]) -> list[float]:
    """Between times that differ; the least is the clock's tick: 32 ns where they come from activity records."""
    apart = (later - earlier for earlier, later in itertools.pairwise(sorted(set(times))))
    return [step for step in apart if step > JITTER_US]
