"""What was measured of one case: times by side and block, and the ratios that they give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import stats
from harness.activity import Activity
from harness.records import Ratio
from harness.rotation import WorkingSet

JITTER_US = 0.004
"""Times on the same tick of a GPU's clock are told a nanosecond or two apart: 2.144, 2.145, 2.175, 2.176 us."""


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
            return stats.of_rounds(self._in_rounds(over, under), self._tick(under))
        return stats.of_blocks(_log_ratios(self.samples[over], self.samples[under]))

    def ratio(self, over: str, under: str, margin: float) -> Ratio | None:
        return stats.ratio(self.estimate(over, under), margin)

    def _in_rounds(self, over: str, under: str) -> list[list[float]]:
        """Neighbours in time are compared first: what disturbs a round disturbs all of it."""
        return [_log_ratios(block[over], block[under]) for block in self.rounds if over in block and under in block]

    def _tick(self, side: str) -> float:
        """The step in which the clock tells this side's times, as a part of them; activity records have 32 ns."""
        times = sorted({time for block in self.rounds for time in block.get(side, ())})
        steps = [later - earlier for earlier, later in itertools.pairwise(times) if later - earlier > JITTER_US]
        return min(steps) / times[len(times) // 2] if steps else 0.0

    @property
    def blocks(self) -> int:
        """Of the side that has the fewest: the candidate takes turns with every other."""
        return min(map(len, self.samples.values()), default=0)


def _log_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(over, under, strict=True)]
