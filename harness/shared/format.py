"""One spelling of every number and list that a person reads: times, speedups, percentages. Both halves use it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.shared.results import Ratio, RoofBound

DASH = "-"
"""For a number that is not known."""
MUCH_SPREAD = 10.0
"""Percent; from here on an interval whose ends are far from even shows both."""
LOPSIDED = 1.5
"""The farther end over the nearer one, from which an interval counts as uneven."""


def microseconds(value: float | None) -> str:
    """Four significant digits at most, never an exponent: 2.413, 17.62, 518.6, 12340."""
    if value is None:
        return DASH
    decimals = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:.{decimals}f}"


def seconds(value: float) -> str:
    """Two significant digits, from ten seconds on whole ones: 0.31 s, 2.4 s, 20 s."""
    return f"{value:.0f} s" if value >= 10 else f"{round(value, 3):.2g} s"


def milliseconds(value: float) -> str:
    return f"{plain(value)} ms"


def times(value: float | None) -> str:
    """Two decimals; below 0.05 two significant digits, so that a kernel 200 times slower is not 0.00x."""
    return DASH if value is None else f"{value:.2f}x" if value >= 0.05 or value <= 0 else f"{value:.2g}x"


def exact(value: float | None) -> str:
    """The speedup of a row, to three decimals."""
    return DASH if value is None else f"{value:.3f}x"


def speedup(ratio: Ratio | None) -> str:
    """A row's speedup with its interval: `1.396x ±0.1%`."""
    return DASH if ratio is None else f"{exact(ratio.speedup)} {spread(ratio)}"


def geomean(ratio: Ratio | None) -> str:
    return DASH if ratio is None else f"{times(ratio.speedup)} {spread(ratio, decimals=2)}"


def spread(ratio: Ratio, decimals: int = 3, most: int | None = None) -> str:
    """Half the interval's width, `±0.4%`; both ends, `-78+9%`, where that would mislead.

    It misleads if the interval is wide and lopsided, or if `±` would reach across 1 although the verdict is faster or
    slower. `decimals` says how the speedup before it is shown. What would take more than `most` cells (`±` takes two in
    ASCII) is ± the farther end instead, or nothing if that would reach across 1: a cut interval claims more than was
    measured.
    """
    down, up = (1 - ratio.low / ratio.speedup) * 100, (ratio.high / ratio.speedup - 1) * 100
    half = (down + up) / 2
    room_down, room_up = _room(ratio, decimals)
    lopsided = half >= MUCH_SPREAD and max(down, up) > LOPSIDED * min(down, up)
    shown = f"±{half:.1f}%" if half < 99.95 else f"±{half:.0f}%"
    if lopsided or round(half, 1) >= min(room_down, room_up):
        shown = f"-{_end(down, room_down)}+{_end(up, room_up)}%"
    if most is None or len(shown) + shown.count("±") <= most:
        return shown
    farther = math.ceil(max(down, up))
    return f"±{farther}%" if farther < min(room_down, room_up) and len(f"+-{farther}%") <= most else ""


def _room(ratio: Ratio, decimals: int) -> tuple[float, float]:
    """How many percent the shown interval may reach down and up before it contradicts the verdict."""
    to_one = (1 / max(round(ratio.speedup, decimals), 10**-decimals) - 1) * 100
    faster, slower = ratio.verdict == "faster" and ratio.low > 1, ratio.verdict == "slower" and ratio.high < 1
    return (-to_one if faster else math.inf), (to_one if slower else math.inf)


def _end(reach: float, room: float) -> int:
    """Whole percent, rounded towards the speedup where the nearest whole number would reach 1."""
    return round(reach) if round(reach) < room else max(math.ceil(room) - 1, 0)


def percent(value: float | None, of: float = 1.0) -> str:
    """A share in whole percent: `62%`. What already counts percent is `of` 100."""
    return DASH if value is None else f"{whole(value / of * 100)}%"


def share(fraction: float) -> str:
    """Of many values, rounded down, so that only all of them are 100%: `99.99%`, `<0.01%`."""
    hundredths = math.floor(round(fraction * 1e4, 6))
    return f"{hundredths / 100:g}%" if hundredths or not fraction else "<0.01%"


def fine_percent(fraction: float) -> str:
    """To a tenth of a percent, for noise and disagreement."""
    return f"{fraction * 100:.1f}%"


def change(ratio: float) -> str:
    """New over old: `-0.7%`, `+12.0%`, and from ten times on `29x`."""
    return f"{(ratio - 1) * 100:+.1f}%" if ratio < 10 else f"{ratio:.0f}x"


def factor(ratio: float) -> str:
    """How many times as much: `1.4x`. For everything but speedups, which are finer."""
    return f"{ratio:.1f}x"


def terabytes(bytes_per_second: float | None) -> str:
    return DASH if bytes_per_second is None else f"{tera(bytes_per_second / 1e12)} TB/s"


def tera(value: float) -> str:
    """A bandwidth under the heading TB/s: 4.0, 0.32."""
    return fixed(value, 1 if value >= 1 else 2)


def roof(fraction: float, bandwidth: float | None = None, bound: RoofBound | None = None) -> str:
    """How near a call comes to a plain copy, or to what bounds it; `bandwidth` is the copy's, in bytes per second."""
    rate = f", {terabytes(bandwidth)}" if bandwidth and bound != "compute" else ""
    if bound is not None:
        return f"{percent(fraction)} of the {bound} roofline{rate}"
    return f"{percent(fraction)} of the copy bandwidth measured here{rate}"


def whole(value: float | None) -> str:
    return fixed(value, 0)


def fixed(value: float | None, decimals: int) -> str:
    """For a figure whose unit is in its heading."""
    return DASH if value is None else f"{value:.{decimals}f}"


def plain(value: float) -> str:
    """As a person would type it: 0.5, 20, 1e-05."""
    return f"{value:g}"


def error(value: float | None) -> str:
    return DASH if value is None else "0" if value == 0 else f"{value:.1e}"


def plural(count: int, noun: str, several: str = "") -> str:
    """`1 case`, `2 cases`, `2 processes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or noun + 's'}"


def joined(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
