"""Slow first calls show that the others found their inputs in the L2."""

from __future__ import annotations

from itertools import chain
from types import MappingProxyType

import pytest

from harness.device.activity import Activity, Record
from harness.timing import first_touch
from harness.timing.samples import Timing


def call(ns: int, *names: str) -> Activity:
    """A call whose last kernel takes `ns`; the ones before it take a nanosecond each."""
    all_names = (*names, "own")
    starts = [place if place < len(names) else len(names) for place in range(len(all_names))]
    records = [
        Record(name, start, start + (ns if name == "own" else 1), 7, start)
        for name, start in zip(all_names, starts, strict=True)
    ]
    return Activity(tuple(records), 7)


def later(calls: list[Activity]) -> list[Activity]:
    """The same calls a second later."""
    return [
        Activity(tuple(r._replace(start_ns=r.start_ns + 10**9, end_ns=r.end_ns + 10**9) for r in call.records), 7)
        for call in calls
    ]


def timing(own: list[list[Activity]], base: list[list[Activity]], began: str = "baseline") -> Timing:
    """The blocks of two alternating sides, each begun by the same."""
    own, base = ([later(block) for block in own], base) if began == "baseline" else (own, [*map(later, base)])
    rounds = tuple(
        MappingProxyType(
            {name: tuple(item.busy_us for item in calls) for name, calls in (("solution", a), ("baseline", b))}
        )
        for a, b in zip(own, base, strict=True)
    )
    flat = {"solution": list(chain(*own)), "baseline": list(chain(*base))}
    return Timing({}, rounds, flat)


def joined(*timings: Timing) -> Timing:
    """One timing with the blocks of all."""
    names = timings[0].activities
    activities = {name: [call for one in timings for call in one.activities[name]] for name in names}
    return Timing({}, tuple(block for one in timings for block in one.rounds), activities)


EVEN = [call(1700), call(1732), call(1700), call(1668)]
SLOW = [call(1900), *EVEN[1:]]
EXCUSED = timing([EVEN] * 3, [SLOW] * 3, "solution")
ACCUSED = timing([EVEN] * 3, [EVEN] * 3, "solution")
"""Blocks that the solution began, and in which the baseline's first calls are slow, or are not."""


def test_slow_first_calls_of_the_solution_alone_disqualify() -> None:
    found = first_touch.finding(joined(timing([SLOW] * 7 + [EVEN], [EVEN] * 8), ACCUSED))
    assert found is not None
    assert (found.code, found.disqualifying) == ("inputs_kept", True)
    assert "in 7 of the 8 blocks" in found.help
    assert "median 12%" in found.help


@pytest.mark.parametrize(("slow", "blocks"), [(5, 5), (6, 8), (9, 13), (10, 14)])
def test_what_an_honest_kernel_shows_by_accident_is_noise(slow: int, blocks: int) -> None:
    few = timing([SLOW] * slow + [EVEN] * (blocks - slow), [EVEN] * blocks)
    assert first_touch.finding(joined(few, ACCUSED)) is None


@pytest.mark.parametrize(("slow", "blocks"), [(6, 6), (8, 10), (12, 16)])
def test_what_it_shows_once_in_ten_thousand_rows_is_not(slow: int, blocks: int) -> None:
    many = timing([SLOW] * slow + [EVEN] * (blocks - slow), [EVEN] * blocks)
    assert first_touch.finding(joined(many, ACCUSED)) is not None


def test_the_call_that_begins_a_block_is_slow_for_another_reason() -> None:
    """It follows the kernels that vary the inputs' values."""
    begun = timing([SLOW] * 8, [EVEN] * 8, "solution")
    assert first_touch.finding(joined(begun, timing([EVEN] * 8, [EVEN] * 8))) is None


@pytest.mark.parametrize("count", [6, 8, 12])
def test_slow_first_calls_of_both_sides_have_another_cause(count: int) -> None:
    """Either side counts in the blocks that the other one began, however few these are."""
    slow = timing([SLOW] * count, [SLOW] * count)
    assert first_touch.finding(joined(slow, EXCUSED)) is None
    assert first_touch.finding(joined(slow, ACCUSED)) is not None


def test_without_the_baselines_first_calls_nothing_is_said() -> None:
    assert first_touch.finding(timing([SLOW] * 8, [EVEN] * 8)) is None


def test_a_first_call_that_launches_more_is_not_compared() -> None:
    other = [call(1900, "Memcpy HtoD"), *EVEN[1:]]
    assert first_touch.finding(joined(timing([other] * 8, [EVEN] * 8), ACCUSED)) is None


def test_a_row_without_records_has_nothing_to_compare() -> None:
    assert first_touch.finding(Timing({"solution": (1.0,)})) is None


def test_blocks_with_another_side_keep_their_place() -> None:
    """The solution has blocks with each opponent; the baseline's calls must not be taken from those with the best."""
    both = joined(timing([SLOW] * 16, [EVEN] * 8 + [[]] * 8), ACCUSED)
    rounds = tuple(MappingProxyType({name: times for name, times in block.items() if times}) for block in both.rounds)
    assert first_touch.finding(Timing({}, rounds, both.activities)) is not None
