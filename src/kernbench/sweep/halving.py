"""Successive halving: which variants are timed in which round, with how much of the budget, and how they stand.

Every score is a speedup over the same source, so variants of different rounds can be ranked. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.shared import stats
from harness.shared.results import Ratio
from kernbench.sweep.variants import Variant

FINALISTS = 4
LEAST_SHARE = 1 / 8
"""Of a row's budget, in the first round."""
ONE = Ratio(1.0, 1.0, 1.0, "same")


@dataclass(frozen=True)
class Standing:
    """How far a variant has come."""

    variant: Variant
    status: str = "waiting"
    """waiting, ok, or why it is out: wrong, build_error, crashed and so on."""
    detail: str = ""
    ratio: Ratio | None = None
    """Over the source as it is; over the baseline if that is not right."""
    us: float | None = None
    """Geomean of its rows' times."""
    round: int = 0
    """The last screening it took part in."""
    is_full: bool = False
    """All its rows were timed and checked with the whole budget."""
    seconds: float = 0.0

    @property
    def score(self) -> float | None:
        return self.ratio.speedup if self.status == "ok" and self.ratio is not None else None

    @property
    def word(self) -> str:
        if self.status != "ok":
            return self.status.replace("_", " ")
        return ("in full" if self.is_full else f"round {self.round}") if not self.variant.is_now else "now"


@dataclass(frozen=True)
class Round:
    variants: int
    """That take part."""
    stay: int
    """That take part in the next, or in the final."""
    share: float
    """Of the budget."""


def rounds(count: int) -> list[Round]:
    """The screenings of so many variants: half of them stay each time, and the budget doubles, to a quarter in the
    last."""
    sizes = [count]
    while sizes[-1] > FINALISTS:
        sizes.append(max(FINALISTS, math.ceil(sizes[-1] / 2)))
    last = len(sizes) - 1
    return [Round(sizes[i], sizes[i + 1], max(LEAST_SHARE, 0.5 ** (last - i + 1))) for i in range(last)]


def ranked(standings: Iterable[Standing]) -> list[Standing]:
    """The fastest first; those without a score last, in their order."""
    return sorted(standings, key=lambda item: -math.inf if item.score is None else item.score, reverse=True)


def next_finalist(standings: Sequence[Standing]) -> Standing | None:
    """The best one that has not been timed in full: until there are enough, and as long as one looks faster than the
    fastest of those that have. The source as it is needs no such run: it is what the others are compared with."""
    left = [item for item in ranked(standings) if item.status in ("ok", "waiting")]
    waiting = next((item for item in left if not item.is_full), None)
    enough = sum(item.is_full and not item.variant.is_now for item in left) >= FINALISTS
    return waiting if waiting is not None and (not enough or left[0] is waiting) else None


def winner(standings: Iterable[Standing]) -> Standing | None:
    return next((item for item in ranked(standings) if item.score is not None and item.is_full), None)


def times(first: Ratio, second: Ratio) -> Ratio:
    """A speedup over something that itself has one."""
    speedup = first.speedup * second.speedup
    reach = [
        math.hypot(math.log(first.speedup / first.low), math.log(second.speedup / second.low)),
        math.hypot(math.log(first.high / first.speedup), math.log(second.high / second.speedup)),
    ]
    low, high = speedup * math.exp(-reach[0]), speedup * math.exp(reach[1])
    return Ratio(speedup, low, high, stats.verdict(speedup, low, high, stats.MARGIN))
