"""Pure maths of the verdicts: centre, interval, floor, word, geomean. Standard library only.

A timed case yields one log ratio per block, log(baseline time / solution time). Their interquartile mean is the
speedup, or a trimmed mean over the rounds of all blocks where sides take turns call by call; the order statistics
around the blocks' median give its 95 % interval, with no assumption about the shape of the noise. Fewer than six blocks
have no such interval, and then there is no ratio.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from harness.records import Ratio, VerdictWord

MARGIN = 0.01
"""Differences up to this are called the same."""
SHORT_MARGIN = 0.015
SHORT_US = 5.0
"""Below this, clocks tick too coarsely for the one-percent margin."""
FEWEST_BLOCKS = 6
QUARTER = 0.25
OF_ROUNDS = 0.3
"""Left out at either end of the ratios of single rounds. With every call of 300 A/A runs kept (15 shapes on an H200),
the speedups scattered by 0.20 % so; by 0.21 with a quarter, 0.25 with a tenth, and 0.24 by the interquartile mean over
blocks of the ratios of their interquartile means. Less scatter is not all: the median would snap to the 32 ns that
records tick in; where calls scatter by less than 20 ns this mean still does, by 0.3 % of 2 us, far below a margin."""
WIDTH_GOAL = 0.0035
"""Half width of the interval at which timing may stop."""
WORST_HEADLINE = 0.97
"""No headline row of a new best may be slower than this against the old one."""


def interquartile_mean(values: Sequence[float]) -> float:
    return trimmed_mean(values, QUARTER)


def trimmed_mean(values: Sequence[float], share: float) -> float:
    """Mean without `share` of the values at either end, the edge values weighted by the part of them that is left."""
    ordered = sorted(values)
    if len(ordered) < 4:
        return median(ordered)
    ends = len(ordered) * share
    cut = int(ends)
    inside = 1 - (ends - cut)
    middle = ordered[cut + 1 : len(ordered) - cut - 1]
    total = math.fsum(middle) + inside * (ordered[cut] + ordered[-cut - 1])
    return total / (len(middle) + 2 * inside)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


@functools.cache
def interval_rank(count: int, confidence: float = 0.95) -> int | None:
    """How many values lie outside the median's interval on each side; None when there are too few."""
    tail = (1 - confidence) / 2
    chance, cumulative, rank = 0.5**count, 0.0, None
    for below in range(count // 2 + 1):
        cumulative += chance
        if cumulative > tail:
            break
        rank = below
        chance *= (count - below) / (below + 1)
    return rank


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    rank = interval_rank(len(values))
    if rank is None:
        return None
    ordered = sorted(values)
    return ordered[rank], ordered[-1 - rank]


def half_width(log_ratios: Sequence[float]) -> float:
    """Half the interval's width as a fraction; infinite while there are too few blocks."""
    bounds = median_interval(log_ratios)
    return math.inf if bounds is None else math.expm1((bounds[1] - bounds[0]) / 2)


def margin(time_us: float, floor: float | None = None) -> float:
    """The smallest difference that is worth a word for a case of this duration."""
    return max(SHORT_MARGIN if time_us < SHORT_US else MARGIN, floor or 0.0)


def verdict(speedup: float, low: float, high: float, margin: float) -> VerdictWord:
    if low > 1 and speedup > 1 + margin:
        return "faster"
    if high < 1 and speedup < 1 - margin:
        return "slower"
    if abs(speedup - 1) <= margin and (high - low) / 2 <= margin:
        return "same"
    return "unclear"


def ratio(log_ratios: Sequence[float], margin: float, centre: float | None = None) -> Ratio | None:
    """From the log ratios of blocks; `centre` is the log of the speedup where more is known of it than these say."""
    bounds = median_interval(log_ratios)
    if bounds is None:
        return None
    centre = interquartile_mean(log_ratios) if centre is None else centre
    centre = min(max(centre, bounds[0]), bounds[1])
    speedup, low, high = math.exp(centre), math.exp(bounds[0]), math.exp(bounds[1])
    return Ratio(speedup, low, high, verdict(speedup, low, high, margin))


def geomean(ratios: Sequence[Ratio], margin: float = MARGIN) -> Ratio | None:
    """Geometric mean; rows are independent, so their half widths add in squares."""
    if not ratios:
        return None
    count = len(ratios)
    centre = math.fsum(math.log(row.speedup) for row in ratios) / count
    below = math.sqrt(math.fsum(math.log(row.speedup / row.low) ** 2 for row in ratios)) / count
    above = math.sqrt(math.fsum(math.log(row.high / row.speedup) ** 2 for row in ratios)) / count
    speedup, low, high = math.exp(centre), math.exp(centre - below), math.exp(centre + above)
    return Ratio(speedup, low, high, verdict(speedup, low, high, margin))


def floor_of(self_ratios: Sequence[float]) -> float:
    """95th percentile (linear between ranks) of how far equal sides came apart."""
    distances = sorted(abs(value - 1) for value in self_ratios)
    place = 0.95 * (len(distances) - 1)
    index = int(place)
    above = distances[min(index + 1, len(distances) - 1)]
    return distances[index] + (place - index) * (above - distances[index])


def beats_best(headline: Sequence[Ratio]) -> bool:
    """Whether the direct ratios to best make a new best: the mean clearly above 1, no row far below."""
    mean = geomean(headline)
    return mean is not None and mean.low > 1 + MARGIN and all(row.speedup >= WORST_HEADLINE for row in headline)
