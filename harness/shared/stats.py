"""The math behind the verdicts: center, interval, floor, verdict, geomean. Standard library only.

- Input: log ratios, log(baseline time / solution time), of one timed case.
- Output: an estimate, the log of the speedup with its 95% interval. Fewer than six blocks have no interval and no
  ratio.
- Blocks with one ratio each (`of_blocks`): the interquartile mean, and the order statistics around the median, with no
  assumption about the shape of the noise.
- Blocks in which two sides alternate call by call (`of_rounds`): each call is compared with the other side's calls in
  its round and in the two rounds before and after. The center is a trimmed mean of these ratios; the interval comes
  from the scatter of the blocks' trimmed sums, so ratios within a block may be correlated.
- Coverage, in 300 A/A runs on an H200: the interval of `of_rounds` missed 1.00 in 4%, and the true value in 4 to 5%
  after up to two percent were added to one side. Order statistics missed in 1%, being a third too wide.
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
"""Differences up to this count as the same."""
SHORT_MARGIN = 0.015
SHORT_US = 5.0
"""Below this, the clock's resolution is too coarse for the one-percent margin."""
MOST_SAME = 0.03
"""Upper limit for `same`: a wider floor means that a change cannot be seen, not that nothing changed."""
FEWEST_BLOCKS = 6
QUARTER = 0.25
NEAR, OF_ROUNDS = 2, 0.35
"""The most rounds apart that calls are compared, and the share of those ratios trimmed at each end. Over every call of
300 A/A runs (15 shapes on an H200), speedups of rows from 5 us up scattered by 0.105% (at worst 0.36); compared only
within a round, by 0.124% (at worst 0.48). Low scatter is not enough: subtracting a local level from each call before
comparing the sides scattered as little, but lost a tenth of a true two percent. The median would snap to the 32 ns
resolution of the records."""
WIDTH_GOAL, WIDTH_GOAL_OF_ROUNDS = 0.0035, 0.0025
"""Half width of the interval at which timing may stop; order statistics give a wider interval for the same scatter."""
WORST_HEADLINE = 0.97
"""The lowest speedup over the old best that any headline row of a new best may have."""

Turns = tuple[Sequence[float], Sequence[float]]
"""Times of two sides that alternated call by call; the n-th of each make up a round."""


def interquartile_mean(values: Sequence[float]) -> float:
    return trimmed_mean(values, QUARTER)


def trimmed_mean(values: Sequence[float], share: float) -> float:
    """Mean without `share` of the values at each end; the edge values are weighted by their remaining part."""
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
    """How many values are outside the median's interval on each side; None if there are too few."""
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
    """From one log ratio per block."""
    bounds = median_interval(log_ratios)
    if bounds is None:
        return None
    return Estimate(min(max(interquartile_mean(log_ratios), bounds[0]), bounds[1]), *bounds)


def of_rounds(blocks: Sequence[Turns], tick: float = 0.0) -> Estimate | None:
    """From the logs of each block's times; `tick` is the clock's resolution relative to the time.

    If most calls fall on one tick, the interval would shrink around a value that is off by a quarter of a tick half the
    time: spreading ties (timing/samples.py) does not reveal where between two ticks the times really were.
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
    freedom = max(2, min(len(blocks), calls - 2 * int(calls * OF_ROUNDS)) - 1)  # clamped values add no information
    reach = max(student(freedom) * error, tick / 4)
    return Estimate(centre, centre - reach, centre + reach)


def _neighbours(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Log ratios of calls at most NEAR rounds apart."""
    found: list[float] = []
    for apart in range(min(NEAR + 1, len(over))):
        found += map(operator.sub, over[apart:], under)
        if apart:
            found += map(operator.sub, over, under[apart:])
    return found


def student(freedom: int) -> float:
    """Student's 97.5% quantile, by its expansion around the normal quantile: within 0.004 from five degrees of freedom
    up, 3% too low at two."""
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
    """The smallest difference that counts for a case of this duration."""
    return max(SHORT_MARGIN if time_us < SHORT_US else MARGIN, floor or 0.0)


def verdict(speedup: float, low: float, high: float, margin: float) -> VerdictWord:
    """A slowdown mirrors a speedup: 0.5x is as far from 1 as 2x, so even a wide margin can be left on both sides."""
    if low > 1 and speedup > 1 + margin:
        return "faster"
    if high < 1 and speedup < 1 / (1 + margin):
        return "slower"
    near = min(margin, MOST_SAME)
    if distance(speedup) <= near and high <= low * (1 + near) ** 2:
        return "same"
    return "unclear"


def distance(speedup: float) -> float:
    """How far a speedup is from 1, whichever side is faster: 1.0 for 2x and for 0.5x."""
    return max(speedup, 1 / speedup) - 1


def ratio(estimate: Estimate | None, margin: float) -> Ratio | None:
    if estimate is None:
        return None
    speedup, low, high = math.exp(estimate.centre), math.exp(estimate.low), math.exp(estimate.high)
    return Ratio(speedup, low, high, verdict(speedup, low, high, margin))


def geomean(ratios: Sequence[Ratio], margin: float = MARGIN) -> Ratio | None:
    """Geometric mean. Rows are independent, so their half widths add in quadrature."""
    if not ratios:
        return None
    count = len(ratios)
    centre = math.fsum(math.log(row.speedup) for row in ratios) / count
    below = math.sqrt(math.fsum(math.log(row.speedup / row.low) ** 2 for row in ratios)) / count
    above = math.sqrt(math.fsum(math.log(row.high / row.speedup) ** 2 for row in ratios)) / count
    speedup, low, high = math.exp(centre), math.exp(centre - below), math.exp(centre + above)
    return Ratio(speedup, low, high, verdict(speedup, low, high, margin))


def weighted_geomean(speedups: Sequence[float], weights: Sequence[float]) -> float | None:
    """Geometric mean with the weights as exponents."""
    total = math.fsum(weights)
    if not total:
        return None
    return math.exp(math.fsum(map(operator.mul, map(math.log, speedups), weights)) / total)


def floor_of(self_ratios: Sequence[float]) -> float:
    """95th percentile (linear between ranks) of the distance between identical sides; which of them is divided by the
    other is arbitrary."""
    distances = sorted(map(distance, self_ratios))
    place = 0.95 * (len(distances) - 1)
    index = int(place)
    above = distances[min(index + 1, len(distances) - 1)]
    return distances[index] + (place - index) * (above - distances[index])


def beats_best(headline: Sequence[Ratio]) -> bool:
    """Whether the direct ratios to best make a new best: the mean is clearly above 1 and no row far below."""
    mean = geomean(headline)
    return mean is not None and mean.low > 1 + MARGIN and all(row.speedup >= WORST_HEADLINE for row in headline)
