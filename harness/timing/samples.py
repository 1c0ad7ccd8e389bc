"""The measurements of one case: times by side and block, and their ratios."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.device.activity import Activity
from harness.device.cpu_load import Load
from harness.shared import stats
from harness.shared.results import ClockName, Finding, Ratio
from harness.timing.input_sets import WorkingSet

JITTER_US = 0.004
"""Times on the same tick of a GPU's clock are reported a nanosecond or two apart: 2.144, 2.145, 2.175, 2.176 us."""
EVENLY = ((math.sqrt(5) - 1) / 2, math.sqrt(2))
"""The fractional parts of multiples of these fill the unit interval evenly from the start; the two sequences are nearly
independent, so differences do not tie either."""


@dataclass
class Timing:
    """Samples of one case: microseconds per block and side."""

    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """A time is the robust mean of a block's calls; if sides alternate in pairs, the candidate has blocks with each."""
    rounds: tuple[Mapping[str, tuple[float, ...]], ...] = ()
    """Times of each side's calls by block, if sides alternate call by call; the n-th of each make up a round."""
    activities: dict[str, list[Activity]] = field(default_factory=dict)
    """What each timed call of a side ran on the device, if the clock records it."""
    checked: Activity | None = None
    """What the solution ran in the last call before timing, whose result was judged; None if that was not recorded."""
    busy: dict[str, float] = field(default_factory=dict)
    """CPUs that a side kept busy on average, over all threads; only if a batch is one block."""
    dropped: int = 0
    """Blocks dropped because the GPU was throttled."""
    unsteady: str | None = None
    """Why blocks were dropped."""
    printed: int = 0
    """Bytes that a call of the solution writes to stdout and stderr."""
    last: tuple[Any, WorkingSet] | None = None
    """The solution's result from one more call, at a known address with different values, and its working set."""

    def time_us(self, side: str) -> float | None:
        values = self.samples.get(side)
        return stats.interquartile_mean(values) if values else None

    def paired_with(self, side: str, other: str) -> Sequence[float]:
        """A side's times from the blocks in which it alternated with another: the same kernel took 1.45 us when paired
        with one side and 1.77 us with another. All of its times if the two never alternated."""
        shared = [block[side] for block in self.rounds if side in block and other in block]
        return [stats.interquartile_mean(times) for times in shared] or self.samples.get(side, ())

    def estimate(self, over: str, under: str) -> stats.Estimate | None:
        """How much faster one side is than another; None if there are too few blocks."""
        if self.rounds:
            blocks = [block for block in self.rounds if over in block and under in block]
            return _of_turns([(block[over], block[under]) for block in blocks])
        return stats.of_blocks(_log_ratios(self.samples[over], self.samples[under]))

    def ratio(self, over: str, under: str, margin: float) -> Ratio | None:
        return stats.ratio(self.estimate(over, under), margin)

    @property
    def blocks(self) -> int:
        """Blocks of the side with the fewest: the candidate alternates with every other."""
        return min(map(len, self.samples.values()), default=0)


@dataclass
class Timed:
    """The measurements of one case with what was found on the way."""

    samples: Timing
    clock: ClockName
    wall: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    load: Load | None = None
    """Of other programs, meanwhile; only on a CPU."""


def _log_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(over, under, strict=True)]


def _of_turns(blocks: Sequence[stats.Turns]) -> stats.Estimate | None:
    """Compares neighbors in time: what disturbs one disturbs the other.

    Times on one tick of the clock are spread evenly over it: if many tie, one call more or less would move the trimmed
    mean by a whole tick without widening the interval. The tick is determined per side: the sum of many kernels is not
    on a grid.
    """
    sides = [[time for block in blocks for time in block[side]] for side in (0, 1)]
    if not sides[1]:
        return None
    ticks = [min(_steps(times), default=0.0) for times in sides]
    ticks = [tick or max(ticks) for tick in ticks]  # if all times of one side tie, use the other's
    spread = [itertools.count(0, step) for step in EVENLY]

    def logs(times: Sequence[float], side: int) -> list[float]:
        tick, place = ticks[side], spread[side]
        # a call that did nothing took almost no time and cannot be spread by more than that
        return [math.log(time + min(tick, time) * (next(place) % 1 - 0.5)) for time in times]

    turns = [(logs(over, 0), logs(under, 1)) for over, under in blocks]
    return stats.of_rounds(turns, max(tick / stats.median(times) for tick, times in zip(ticks, sides, strict=True)))


def _steps(times: Sequence[float]) -> list[float]:
    """Steps between distinct times; the smallest is the clock's tick: 32 ns for activity records."""
    apart = (later - earlier for earlier, later in itertools.pairwise(sorted(set(times))))
    return [step for step in apart if step > JITTER_US]
