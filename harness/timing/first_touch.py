"""Whether a source keeps its inputs in the L2 over the flush: then its first call on a set of inputs takes longer.

Lines of the L2 that a kernel loads with the hint `evict_last` survive the reads of the flush: a softmax of half a
megabyte became 9% faster that way on an H200, and the first call of each block, on another set than the calls before
it, took 8 to 14% longer than the others. Honest kernels of that length: -2 to 3%. Inputs of several megabytes do not
survive.

The call that begins a block comes right after the kernels that put new values into the inputs, and takes about 0.15 us
longer whatever it loads: 10% of the smallest rows. So a side counts only in the blocks that the other one began. There,
first calls of honest kernels took 5% longer in 45 of 228 blocks, but in no row in three quarters of its blocks
(tests/measure/measure_first_touch.py). By that share, four slow ones of five happen by accident in one row of 150: so
few say nothing. The price: of a source whose first calls are all slow, nine rows of ten are caught with the usual 16
blocks or more, but only one of ten where the budget allows eight. A confirmation looks again.

Where both sides use the hint, as torch.compile's reductions do, neither shows it: the one that begins a block fetches
the inputs for the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.device.activity import Activity
from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.findings import make
from harness.shared.results import Finding
from harness.timing.samples import Timing

LONGER = 1.05
"""A first call that takes so many times the median of the others is slow."""
IN_MOST = 0.75
"""Share of the blocks."""
HONEST, RARE = 0.2, 1e-4
"""The share of an honest kernel's first calls that are slow, and the chance of an accident below which the source is
accused: six slow ones of six, seven of eight, nine of twelve."""
FEWEST_OF_BASELINE = 2
"""Blocks in which the baseline may excuse the source."""


def finding(timing: Timing) -> Finding | None:
    """Disqualifies if the solution's first calls are slow and the baseline's, which the flush treats alike, are not."""
    own, base = (list(_ratios(timing, side)) for side in ("solution", "baseline"))
    if len(base) < FEWEST_OF_BASELINE or not _mostly_slow(own) or _mostly_slow(base) or _by_accident(own) > RARE:
        return None
    return make("inputs_kept", slow=_slow(own), blocks=len(own), longer=fmt.percent(stats.median(own) - 1))


def _slow(ratios: list[float]) -> int:
    return sum(ratio > LONGER for ratio in ratios)


def _mostly_slow(ratios: list[float]) -> bool:
    return _slow(ratios) >= IN_MOST * len(ratios)


def _by_accident(ratios: list[float]) -> float:
    """The chance that so many or more first calls of an honest kernel are slow."""
    count = len(ratios)
    return sum(math.comb(count, n) * HONEST**n * (1 - HONEST) ** (count - n) for n in range(_slow(ratios), count + 1))


def _ratios(timing: Timing, side: str) -> Iterator[float]:
    """By block that another side began: the first call's time to the median of the others. A first call that launched
    something else, such as a copy of a descriptor for the new address, does not count."""
    for calls, others in _blocks(timing, side):
        if len(calls) > 2 and calls[0].names == calls[1].names and _began(others) < _began(calls):
            yield calls[0].busy_us / max(stats.median([call.busy_us for call in calls[1:]]), 1e-3)


def _blocks(timing: Timing, side: str) -> Iterator[tuple[list[Activity], list[Activity]]]:
    """A side's calls in each of its blocks, and the calls of the side that alternates with it."""
    ends: dict[str, int] = {}
    for block in timing.rounds:
        calls: dict[str, list[Activity]] = {}
        for name, times in block.items():
            begin = ends.get(name, 0)
            ends[name] = begin + len(times)
            calls[name] = (timing.activities.get(name) or [])[begin : ends[name]]
        yield calls.pop(side, []), next(iter(calls.values()), [])


def _began(calls: list[Activity]) -> float:
    return min((record.start_ns for call in calls[:1] for record in call.records), default=math.inf)
