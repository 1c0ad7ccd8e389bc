"""Pure maths of the verdicts: centre, interval, floor, word, geomean. Standard library only.

A timed case yields log ratios, log(baseline time / solution time), and from them an estimate: the log of the speedup
with its 95 % interval. Of blocks that have one ratio each: the interquartile mean, and the order statistics around the
median, with no assumption about the shape of the noise. Of blocks in which two sides take turns call by call: every
call against the other side's of its own round and of the two rounds before and after, a trimmed mean over all of these,
and the interval that belongs to it, from how far the blocks' sums of what is left after trimming scatter (so that the
ratios of a block may be alike). In 300 A/A runs on an H200 that one missed 1.00 in 4 %, and the truth in 4 to 5 % after
up to two percent were added to one side; order statistics missed in 1 %, being a third too wide. Fewer than six blocks
have no interval, and then there is no ratio.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from harness.shared.results import Ratio, VerdictWord

MARGIN = 0.01
"""Differences up to this are called the same."""
SHORT_MARGIN = 0.015
SHORT_US = 5.0
"""Below this, clocks tick too coarsely for the one-percent margin."""
MOST_SAME = 0.03
"""A wider floor makes no two sides the same: it tells that nothing can be told, not that nothing changed."""
FEWEST_BLOCKS = 6
QUARTER = 0.25
NEAR, OF_ROUNDS = 2, 0.35
"""How many rounds apart calls are still compared, and what is left out at either end of those ratios. With every call
of 300 A/A runs kept (15 shapes on an H200), speedups of rows from 5 us up scattered by 0.105 % so, at worst 0.36; when
each was compared within its own round only, by 0.124, at worst 0.48. Less scatter is not all: taking the level of its
neighbours from every call before the sides are compared gave as little, and lost a tenth of a true two percent; the
median would snap to the 32 ns that records tick in."""
WIDTH_GOAL, WIDTH_GOAL_OF_ROUNDS = 0.0035, 0.0025
"""Half width of the interval at which timing may stop; order statistics give a wider one for the same scatter."""
WORST_HEADLINE = 0.97
"""No headline row of a new best may be slower than this against the old one."""

Turns = tuple[Sequence[float], Sequence[float]]
"""Of two sides that took turns, call by call; the n-th ones are a round."""


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


class Estimate(NamedTuple):
    """The log of a speedup and its interval."""

    centre: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """As a fraction."""
        return math.expm1((self.high - self.low) / 2)


def of_blocks(log_ratios: Sequence[float]) -> Estimate | None:
    """From one log ratio of every block."""
    bounds = median_interval(log_ratios)
    if bounds is None:
        return None
    return Estimate(min(max(interquartile_mean(log_ratios), bounds[0]), bounds[1]), *bounds)


def of_rounds(blocks: Sequence[Turns], tick: float = 0.0) -> Estimate | None:
    """From the logs of the times of every block; `tick` is what the clock's resolution makes of a ratio.

    Where most calls fall on one tick, the interval would close on a value that is a quarter of a tick off as often as
    not: spreading them (timing/samples.py) does not tell where between two ticks they really lay.
    """
    if len(blocks) < FEWEST_BLOCKS:
        return None
    compared = [_neighbours(*block) for block in blocks]
    ordered = sorted(itertools.chain.from_iterable(compared))
    count, cut = len(ordered), int(len(ordered) * OF_ROUNDS)
    centre, low, high = trimmed_mean(ordered, OF_ROUNDS), ordered[cut], ordered[-cut - 1]
    drawn_in = [sum(low if value < low else min(value, high) for value in block) for block in compared]
    mean = math.fsum(drawn_in) / count
    squares = sum((total - mean * len(block)) ** 2 for total, block in zip(drawn_in, compared, strict=True))
    error = math.sqrt(squares * len(blocks) / (len(blocks) - 1)) / count / (1 - 2 * OF_ROUNDS)
    calls = sum(len(over) for over, _ in blocks)
    freedom = max(2, min(len(blocks), calls - 2 * int(calls * OF_ROUNDS)) - 1)  # what was drawn in says nothing
    reach = max(student(freedom) * error, tick / 4)
    return Estimate(centre, centre - reach, centre + reach)


def _neighbours(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Log ratios of calls that are at most NEAR rounds apart."""
    found: list[float] = []
    for apart in range(min(NEAR + 1, len(over))):
        found += map(operator.sub, over[apart:], under)
        if apart:
            found += map(operator.sub, over, under[apart:])
    return found


def student(freedom: int) -> float:
    """Student's 97.5 % point, by its expansion around the normal one: within 0.004 from five degrees of freedom on,
    3 % short at two."""
    z, total, power = 1.959964, 1.959964, 1
    for numerator, divisor in (
        (z**3 + z, 4),
        (5 * z**5 + 16 * z**3 + 3 * z, 96),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z, 384),
    ):
        power *= freedom
        total += numerator / divisor / power
    return total


def margin(time_us: float, floor: float | None = None) -> float:
    """The smallest difference that is worth a word for a case of this duration."""
    return max(SHORT_MARGIN if time_us < SHORT_US else MARGIN, floor or 0.0)


def verdict(speedup: float, low: float, high: float, margin: float) -> VerdictWord:
    if low > 1 and speedup > 1 + margin:
        return "faster"
    if high < 1 and speedup < 1 - margin:
        return "slower"
    near = min(margin, MOST_SAME)
    if abs(speedup - 1) <= near and (high - low) / 2 <= near:
        return "same"
    return "unclear"


def ratio(estimate: Estimate | None, margin: float) -> Ratio | None:
    if estimate is None:
        return None
    speedup, low, high = math.exp(estimate.centre), math.exp(estimate.low), math.exp(estimate.high)
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
