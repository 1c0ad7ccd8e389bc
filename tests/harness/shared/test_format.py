"""The spelling of numbers, above all of intervals: what is shown must never contradict the verdict next to it."""

from __future__ import annotations

import itertools
import re

import pytest

from harness.shared import format as fmt
from harness.shared.results import Ratio


@pytest.mark.parametrize(
    ("speedup", "low", "high", "verdict", "shown"),
    [
        (1.396, 1.3946, 1.3974, "faster", "1.396x ±0.1%"),
        (0.827, 0.186, 0.910, "slower", "0.827x -78+10%"),
        (0.821, 0.085, 0.926, "slower", "0.821x -90+13%"),
        (0.853, 0.776, 0.930, "unclear", "0.853x ±9.0%"),
        (1.440, 1.166, 3.974, "faster", "1.440x -19+176%"),
        (0.770, 0.077, 11.52, "unclear", "0.770x -90+1396%"),
        (1.020, 1.0098, 1.060, "faster", "1.020x -1+4%"),
        (0.980, 0.940, 0.9902, "slower", "0.980x -4+1%"),
    ],
)
def test_a_speedup_with_its_interval(speedup: float, low: float, high: float, verdict: str, shown: str) -> None:
    assert fmt.speedup(Ratio(speedup, low, high, verdict)) == shown  # type: ignore[arg-type]


def shown_ends(text: str) -> tuple[float, float]:
    value = float(text.partition("x")[0])
    both = re.search(r"-(\d+)\+(\d+)%", text)
    half = re.search(r"±([\d.]+)%", text)
    down, up = both.groups() if both else half.groups() * 2 if half else ("", "")
    return value * (1 - float(down) / 100), value * (1 + float(up) / 100)


@pytest.mark.parametrize("spell", [fmt.speedup, fmt.geomean])
def test_no_interval_contradicts_its_verdict(spell: object) -> None:
    assert callable(spell)
    for gain, near, far in itertools.product((1.0101, 1.0149, 1.02, 1.1, 1.3, 3.0), (0.01, 0.4, 0.999), (1, 1.4, 9)):
        step = (gain - 1) * near
        faster = Ratio(gain, gain - step, gain + far * step, "faster")
        assert shown_ends(spell(faster))[0] > 1, (faster, spell(faster))
        slower = Ratio(1 / gain, max(1 / gain - far * step, 0.001), 1 / (gain - step), "slower")
        assert shown_ends(spell(slower))[1] < 1, (slower, spell(slower))


@pytest.mark.parametrize(
    ("spelled", "text"),
    [
        (fmt.seconds(0.3141), "0.31 s"),
        (fmt.seconds(2.44), "2.4 s"),
        (fmt.seconds(9.97), "10 s"),
        (fmt.seconds(180.0), "180 s"),
        (fmt.seconds(0.00001), "0 s"),
        (fmt.microseconds(2.4134), "2.413"),
        (fmt.microseconds(12340.4), "12340"),
        (fmt.times(0.0049), "0.0049x"),
        (fmt.percent(0.624), "62%"),
        (fmt.percent(62.4, of=100), "62%"),
        (fmt.percent(None), "-"),
        (fmt.share(1.0), "100%"),
        (fmt.share(0.57), "57%"),
        (fmt.share(0.999999), "99.99%"),
        (fmt.share(1e-6), "<0.01%"),
        (fmt.share(0.0), "0%"),
        (fmt.change(0.993), "-0.7%"),
        (fmt.change(29.4), "29x"),
        (fmt.roof(0.624, 4.02e12), "62% of the copy bandwidth measured here, 4.0 TB/s"),
        (fmt.roof(0.711, 4.02e12, "memory"), "71% of the memory roofline, 4.0 TB/s"),
        (fmt.roof(0.642, 4.02e12, "compute"), "64% of the compute roofline"),
        (fmt.plural(2, "process", "processes"), "2 processes"),
        (fmt.joined([]), ""),
        (fmt.joined(["a"]), "a"),
        (fmt.joined(["a", "b"], "or"), "a or b"),
        (fmt.joined(["a", "b", "c"]), "a, b and c"),
    ],
)
def test_other_numbers(spelled: str, text: str) -> None:
    assert spelled == text
