"""The plot of the geomean over iterations."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence

import pytest

from kernbench.events import PulledEntry, Summary
from kernbench.tui.panes import trajectory
from tests.tui.scene import history, summary


def plain(found: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in found]


def test_the_plot_marks_failures_and_stalls() -> None:
    drawn = plain(trajectory.draw([*history(), summary(13, best=False, stalled=True, geomean=1.2)], 60, 12))
    assert len(drawn) == 12
    assert drawn[0] == "o geomean  ─ best  x failed  ! stalled"
    assert all(any(sign in line for line in drawn[1:]) for sign in "ox!")
    assert max(len(line) for line in drawn) <= 60
    assert plain(trajectory.draw(history()[:1], 60, 12)) == ["a plot needs two iterations timed against compile"]
    assert trajectory.draw(history(), 10, 12) == []


def levels(iterations: Sequence[Summary]) -> list[int]:
    """The row of the best's line in each column, from the top; -1 where there is none."""
    lines = [line[7:] for line in plain(trajectory.draw(iterations, 60, 12))[1:9]]
    width = max(map(len, lines))
    return [next((row for row, line in enumerate(lines) if line.ljust(width)[at] in "─"), -1) for at in range(width)]


def test_the_line_of_the_best_does_not_fall_when_it_is_timed_again() -> None:
    runs = [
        summary(1, geomean=1.0, low=1.0, high=1.0),
        summary(2, geomean=1.5, low=1.5, high=1.5),
        summary(3, geomean=1.2, low=1.2, high=1.2, repeats=2, vs_best=None),  # a best is not timed against itself
    ]
    found = [row for row in levels(runs) if row >= 0]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (7, 0)
    over_best = [dataclasses.replace(item, baseline="best") for item in runs]
    assert set(levels(over_best)) == {-1}  # its own geomean is over another baseline


def test_a_line_at_1x_intervals_and_round_ticks() -> None:
    runs = [
        summary(number, best=False, geomean=value, low=value * 0.9, high=value * 1.1)
        for number, value in enumerate((0.87, 1.13, 1.41, 1.38), 1)
    ]
    drawn = plain(trajectory.draw(runs, 60, 16))
    assert next(line for line in drawn if "1.00x┤" in line or "1.0x┤" in line).count("╌") > 40
    assert sum(line[7:].count("│") for line in drawn) >= 4
    ticks = [float(found[0]) for line in drawn if (found := re.findall(r"\d\.\d+(?=x┤)", line))]
    steps = {round(one - other, 6) for one, other in itertools.pairwise(ticks)}
    assert len(ticks) >= 3
    assert len(steps) == 1
    assert steps <= {0.1, 0.2, 0.25, 0.5}
    assert all(line.isascii() for line in plain(trajectory.draw(runs, 60, 16, ascii_only=True)))
    far = [dataclasses.replace(item, geomean=3.0 + 0.01 * number) for number, item in enumerate(runs)]
    assert not any("╌" in line for line in plain(trajectory.draw(far, 60, 16)))


def test_a_part_of_the_cases_is_no_point_of_the_plot() -> None:
    """Its mean is another one: of the long rows alone, say, and far above all others."""
    whole = plain(trajectory.draw(history(), 60, 12))
    part = plain(trajectory.draw([*history(), summary(13, best=False, geomean=9.9, complete=False)], 60, 12))
    assert "9.9" not in "".join(part)
    assert "".join(part).count("o") == "".join(whole).count("o")


@pytest.mark.parametrize("other", [{"baseline": "eager"}, {"device_name": "AMD EPYC"}, {"l2": "warm"}])
def test_only_what_can_be_compared_with_the_newest_is_plotted(other: dict[str, str]) -> None:
    """3.5x over eager says nothing about 1.3x over compile."""
    newest = summary(12)
    environment = dataclasses.replace(
        newest.environment, **{name: word for name, word in other.items() if name != "baseline"}
    )
    stranger = dataclasses.replace(
        newest, iteration=8, geomean=3.5, environment=environment, baseline=other.get("baseline", newest.baseline)
    )
    drawn = plain(trajectory.draw([stranger, *history()], 80, 12))
    assert drawn[0] == "o geomean  ─ best  x failed  + not comparable"
    assert "3." not in "".join(drawn[1:])
    assert drawn[9].strip()[0] == "+"  # below the axis
    assert plain(trajectory.draw([stranger, *history()], 40, 12))[0] == "o geomean  ─ best  x failed"
    alone, another = (dataclasses.replace(stranger, iteration=number, geomean=3.5) for number in (13, 14))
    before = plain(trajectory.draw([*history(), alone], 80, 12))
    assert "3." not in "".join(before[1:])
    assert before[9].strip()[-1] == "+"
    assert "".join(before[1:9]).count("o") == "".join(plain(trajectory.draw(history(), 80, 12))[1:9]).count("o")
    both = plain(trajectory.draw([*history(), alone, another], 80, 12))
    assert "3.5x" in "".join(both)
    assert "".join(both[1:9]).count("o") == 2


def test_iterations_of_other_machines_are_told_apart() -> None:
    """The same model of GPU: comparable, and yet not timed here."""
    given = {field.name: getattr(summary(8), field.name) for field in dataclasses.fields(Summary)}
    pulled = PulledEntry(**{**given, "geomean": 1.25}, outcome="improved")
    drawn = plain(trajectory.draw([pulled, *history()], 80, 12))
    assert drawn[0] == "o geomean  ─ best  @ other machine  x failed"
    assert "".join(drawn[1:]).count("@") == 1
    again = dataclasses.replace(pulled, again=summary(None, run="here", geomean=1.11, low=1.1, high=1.12))
    drawn = plain(trajectory.draw([again, *history()], 80, 12))
    assert "@" not in "".join(drawn)  # it was timed again here, and that time is drawn
    assert [item.geomean for item in trajectory.comparable([again, *history()])][:2] == [1.11, 1.02]
    assert trajectory.comparable([again])[0].iteration == 8


def test_a_task_as_it_was_before_is_not_plotted_beside_the_present_one() -> None:
    changed = [dataclasses.replace(item, task_hash="now") for item in (summary(13), summary(14))]
    before = [dataclasses.replace(item, task_hash="before") for item in history()]
    assert "x failed  " in plain(trajectory.draw([*before, *changed], 80, 12))[0]
    assert plain(trajectory.draw([*before, *changed], 80, 12))[0].endswith(" not comparable")
    assert (
        "not comparable" not in plain(trajectory.draw([*history(), *changed], 80, 12))[0]
    )  # made elsewhere: it does not tell


def test_the_plot_does_not_make_a_cliff_of_noise() -> None:
    near = [summary(number, best=False, geomean=1.2 + 0.0001 * number) for number in (1, 2, 3)]
    drawn = plain(trajectory.draw(near, 60, 12))
    low, high = trajectory.limits(near)
    assert high - low > 0.03
    points = [row for row, line in enumerate(drawn[1:]) if "o" in line]
    assert points[-1] - points[0] <= 1


def test_ten_thousand_iterations_are_plotted_as_the_newest() -> None:
    many = [summary(number, geomean=1 + number / 10_000) for number in range(1, 10_001)]
    assert "#9801" in plain(trajectory.draw(many, 60, 12))[-1]


def test_no_point_touches_the_frame() -> None:
    drawn = plain(trajectory.draw(history(), 60, 12))
    assert any("o" in line for line in drawn[1:-1])
    assert {line[59:] for line in drawn[1:-1]} <= {"", "─", "╌"}
