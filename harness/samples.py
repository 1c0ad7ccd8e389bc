"""What was measured of one case: times by side and block, and the ratios that they give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import stats
from harness.activity import Activity
from harness.records import Ratio
from harness.rotation import WorkingSet


@dataclass
class Timing:
    """Samples of one case: microseconds per block and side."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    rounds: dict[str, list[list[float]]] = field(default_factory=dict)
    """The times of every block's calls, where sides take turns call by call: the n-th ones of all sides are a round."""
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

    def log_ratios(self, over: str, under: str) -> list[float]:
        """Of blocks. Neighbours in time are compared first: what disturbs a round disturbs all of it."""
        if self.rounds:
            return [stats.trimmed_mean(block, stats.OF_ROUNDS) for block in self._in_rounds(over, under)]
        return _log_ratios(self.samples[over], self.samples[under])

    def centre(self, over: str, under: str) -> float:
        """The log of the speedup."""
        if self.rounds:
            every = itertools.chain.from_iterable(self._in_rounds(over, under))
            return stats.trimmed_mean(list(every), stats.OF_ROUNDS)
        return stats.interquartile_mean(self.log_ratios(over, under))

    def ratio(self, over: str, under: str, margin: float) -> Ratio | None:
        return stats.ratio(self.log_ratios(over, under), margin, self.centre(over, under))

    def _in_rounds(self, over: str, under: str) -> Iterator[list[float]]:
        return (_log_ratios(a, b) for a, b in zip(self.rounds[over], self.rounds[under], strict=True))

    @property
    def blocks(self) -> int:
        return len(next(iter(self.samples.values()), []))


def _log_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(over, under, strict=True)]
