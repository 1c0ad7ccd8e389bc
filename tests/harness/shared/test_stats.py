"""The maths of the verdicts against distributions whose truth is known."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from harness.shared import stats
from harness.shared.results import Ratio

often = settings(derandomize=True, deadline=None)


@pytest.mark.parametrize("count", [6, 9, 16, 33, 64])
@pytest.mark.parametrize("shape", ["normal", "skewed", "spiky"])
def test_the_interval_covers_the_median_as_often_as_it_says(count: int, shape: str) -> None:
    source = random.Random(f"{count} {shape}")
    draw = {
        "normal": lambda: source.gauss(0, 1),
        "skewed": lambda: source.expovariate(1) - math.log(2),
        "spiky": lambda: source.gauss(0, 1) * (20 if source.random() < 0.1 else 1),
    }[shape]
    tries, inside = 2000, 0
    for _ in range(tries):
        low, high = stats.median_interval([draw() for _ in range(count)]) or (0, 0)
        inside += low <= 0 <= high
    assert 0.935 <= inside / tries <= 1.0


@pytest.mark.parametrize(
    ("blocks", "rounds"), [(8, 1), (10, 1), (14, 1), (8, 2), (10, 2), (16, 2), (16, 3), (8, 7), (40, 7)]
)
@pytest.mark.parametrize("shape", ["alone", "alike", "spiky"])
def test_the_interval_of_rounds_covers_as_often_as_it_says(blocks: int, rounds: int, shape: str) -> None:
    """Also where there are few, where those of a block are alike, and where some are far off."""
    source = random.Random(f"{blocks} {rounds} {shape}")

    def side() -> list[float]:
        common = source.gauss(0, 1) if shape == "alike" else 0.0
        values = [common + source.gauss(0, 1) for _ in range(rounds)]
        return [value * (20 if source.random() < 0.1 else 1) for value in values] if shape == "spiky" else values

    tries, inside = 1000, 0
    for _ in range(tries):
        found = stats.of_rounds([(side(), side()) for _ in range(blocks)])
        assert found is not None
        inside += found.low <= 0 <= found.high
    assert 0.9 <= inside / tries <= 0.995


def test_an_interval_is_not_closed_by_a_clock_that_ticks() -> None:
    """Nine calls of ten fall on the same tick, and the truth lies between two."""
    source, tick, truth = random.Random(4), 1.0, 0.2
    times = lambda: [float(round(truth + source.gauss(0, 0.2))) for _ in range(7)]  # noqa: E731
    closed, open_ = (stats.of_rounds([(times(), [0.0] * 7) for _ in range(16)], step) for step in (0.0, tick))
    assert closed is not None
    assert open_ is not None
    assert closed.half_width < 0.05
    assert open_.low <= truth <= open_.high


def test_a_call_is_compared_with_those_of_its_own_round_and_of_two_before_and_after() -> None:
    over, under = [0.0, 1.0, 2.0, 3.0], [0.0, 10.0, 20.0, 30.0]
    assert sorted(stats._neighbours(over, under)) == sorted(
        a - b for i, a in enumerate(over) for j, b in enumerate(under) if abs(i - j) <= 2
    )
    assert stats._neighbours([5.0], [2.0]) == [3.0]


@pytest.mark.parametrize("shape", ["steady", "drifting", "in two modes"])
def test_a_true_difference_is_not_drawn_towards_none(shape: str) -> None:
    source, truth = random.Random(shape), 0.02

    def block(number: int) -> stats.Turns:
        def level() -> float:
            return {"steady": 0.0, "drifting": number / 100, "in two modes": source.choice((0.0, 0.03))}[shape]

        return ([truth + level() + source.gauss(0, 0.01) for _ in range(12)],
                [level() + source.gauss(0, 0.01) for _ in range(12)])  # fmt: skip

    found = [stats.of_rounds([block(number) for number in range(32)]) for _ in range(40)]
    assert sum(item.centre for item in found if item) / 40 == pytest.approx(truth, abs=0.0008)


@pytest.mark.parametrize(("freedom", "point"), [(5, 2.571), (7, 2.365), (10, 2.228), (30, 2.042), (1000, 1.962)])
def test_students_distribution(freedom: int, point: float) -> None:
    assert stats.student(freedom) == pytest.approx(point, abs=0.004)


def test_the_interval_is_not_needlessly_wide() -> None:
    assert [stats.interval_rank(count) for count in (5, 6, 8, 9, 12, 20, 100)] == [None, 0, 0, 1, 2, 5, 39]


def test_interquartile_mean_ignores_the_outer_quarters() -> None:
    assert stats.interquartile_mean([1, 2, 3, 4, 5, 6, 7, 800]) == 4.5
    assert stats.interquartile_mean([3.0]) == 3
    assert stats.interquartile_mean([5, 1, 3]) == 3
    assert stats.interquartile_mean([1, 2, 3, 4, 100]) == pytest.approx((0.75 * 2 + 3 + 0.75 * 4) / 2.5)


def test_trimmed_mean_weights_the_values_at_the_edge() -> None:
    assert stats.trimmed_mean([-500, *range(1, 9), 700], 0.1) == 4.5
    assert stats.trimmed_mean([1, 2, 3, 4, 100], 0.1) == pytest.approx((0.5 * 1 + 2 + 3 + 4 + 0.5 * 100) / 4)


@pytest.mark.parametrize(
    ("speedup", "low", "high", "word"),
    [
        (1.10, 1.05, 1.15, "faster"),
        (1.005, 1.002, 1.008, "same"),
        (1.015, 1.012, 1.018, "faster"),
        (1.02, 0.99, 1.05, "unclear"),
        (0.90, 0.85, 0.95, "slower"),
        (0.985, 0.95, 1.02, "unclear"),
        (1.0, 0.95, 1.05, "unclear"),
        (0.995, 0.99, 1.0, "same"),
    ],
)
def test_verdict(speedup: float, low: float, high: float, word: str) -> None:
    assert stats.verdict(speedup, low, high, 0.01) == word


@often
@given(some.tuples(*[some.floats(-4, 4)] * 3), some.floats(0.01, 20))
def test_a_slowdown_is_judged_as_the_mirror_of_a_speedup(logs: tuple[float, float, float], margin: float) -> None:
    low, speedup, high = map(math.exp, sorted(logs))
    mirrored = {"faster": "slower", "slower": "faster"}
    word = stats.verdict(speedup, low, high, margin)
    assert stats.verdict(1 / speedup, 1 / high, 1 / low, margin) == mirrored.get(word, word)


@often
@given(some.floats(-0.05, 0.05), some.floats(0, 0.05), some.floats(0.01, 0.1))
def test_same_is_judged_alike_on_both_sides(centre: float, reach: float, margin: float) -> None:
    speedup, low, high = (math.exp(value) for value in (centre, centre - reach, centre + reach))
    words = {stats.verdict(speedup, low, high, margin), stats.verdict(1 / speedup, 1 / high, 1 / low, margin)}
    assert len(words) == 1 or words == {"faster", "slower"}


def test_a_slowdown_beyond_any_floor_is_slower() -> None:
    assert stats.verdict(0.067, 0.064, 0.071, 0.95) == "slower"
    assert stats.verdict(0.067, 0.064, 0.071, 15.0) == "unclear"
    assert stats.verdict(1 / 1.0099, 0.985, 0.995, 0.01) != "slower"


def test_a_wide_floor_makes_nothing_the_same() -> None:
    assert stats.verdict(1.02, 1.01, 1.03, 0.04) == "same"
    assert stats.verdict(0.952, 0.942, 0.957, 0.21) == "unclear"
    assert stats.verdict(1.26, 1.13, 1.4, 0.44) == "unclear"
    assert stats.verdict(1.5, 1.4, 1.6, 0.44) == "faster"


def test_margin_grows_for_short_calls_and_noisy_machines() -> None:
    assert [stats.margin(100), stats.margin(2)] == [0.01, 0.015]
    assert [stats.margin(100, 0.04), stats.margin(2, 0.001)] == [0.04, 0.015]


def test_too_few_blocks_have_no_ratio() -> None:
    assert stats.of_blocks([0.1] * 5) is None
    assert stats.of_rounds([([0.1] * 9, [0.0] * 9)] * 5) is None
    assert stats.ratio(None, 0.01) is None
    for found in (stats.of_blocks([0.1] * 6), stats.of_rounds([([0.1] * 9, [0.0] * 9)] * 6)):
        assert found is not None
        assert found.half_width == pytest.approx(0, abs=1e-12)
        assert found.centre == pytest.approx(0.1)


def test_equal_sides_are_seldom_called_different() -> None:
    source = random.Random(5)
    words = [stats.ratio(stats.of_blocks([source.gauss(0, 0.03) for _ in range(24)]), 0.01) for _ in range(1000)]
    wrong = sum(1 for ratio in words if ratio is not None and ratio.verdict in ("faster", "slower"))
    assert wrong / 1000 < 0.06


def test_geomean_interval_covers_as_rows_do() -> None:
    source = random.Random(9)
    inside = 0
    for _ in range(500):
        rows = []
        for centre in (0.0, 0.3, -0.1, 0.7):
            row = stats.ratio(stats.of_blocks([source.gauss(centre, 0.05) for _ in range(16)]), 0.01)
            assert row is not None
            rows.append(row)
        mean = stats.geomean(rows)
        assert mean is not None
        inside += mean.low <= math.exp(0.225) <= mean.high
    assert inside / 500 >= 0.93


def test_geomean_of_one_row_is_the_row() -> None:
    mean = stats.geomean([Ratio(1.2, 1.1, 1.3, "faster")])
    assert mean is not None
    assert (mean.speedup, mean.low, mean.high) == pytest.approx((1.2, 1.1, 1.3))
    assert stats.geomean([]) is None


def test_floor_is_the_95th_percentile_of_the_distances() -> None:
    assert stats.floor_of([1.01, 1 / 1.02, 1.0, 1.04]) == pytest.approx(0.02 + 0.85 * 0.02)


def test_floor_does_not_depend_on_which_side_is_divided_by_the_other() -> None:
    assert stats.floor_of([0.5] * 4) == stats.floor_of([2.0] * 4) == 1


def test_best_needs_the_mean_clear_of_the_margin_and_no_row_far_below() -> None:
    good = Ratio(1.05, 1.04, 1.06, "faster")
    assert stats.beats_best([good, good])
    assert not stats.beats_best([good, Ratio(0.96, 0.95, 0.97, "slower")])
    assert not stats.beats_best([Ratio(1.05, 1.0, 1.1, "faster")])
    assert not stats.beats_best([])
