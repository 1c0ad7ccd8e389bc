"""All rows by size, in the plot pane."""

from __future__ import annotations

import dataclasses

import pytest

from harness.shared.results import InputForm
from kernbench.events import WorkerChanged
from kernbench.tui.panes import roofline
from kernbench.tui.state.board import Row
from tests.tui.scene import H200, FakeEngine, make_app, make_task, right, screen_text, settle, whole_run


def rows(**changes: object) -> list[Row]:
    cases = make_task().timed
    return [Row(case, dataclasses.replace(right(index), **changes), True) for index, case in enumerate(cases)]


def plain(found: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in found]


def test_every_row_is_a_point_by_size_and_share() -> None:
    lines = plain(roofline.draw(rows(), 100, 24))
    assert len(lines) == 24
    assert lines[0].startswith("share of the copy bandwidth or nearer bound, by size of the inputs  ▲ faster")
    assert max(map(len, lines)) <= 100
    high, low = (next(at for at, line in enumerate(lines) if name in line) for name in ("wan 7", "mova"))
    assert high < low
    assert sum("▲" in line for line in lines[1:]) >= 2
    assert any("┤╌" in line and "100%" in line for line in lines)
    assert all(line.isascii() for line in plain(roofline.draw(rows(), 60, 12, ascii_only=True)))


def test_rows_in_one_cell_share_a_name() -> None:
    same = [Row(row.case, right(0), True) for row in rows()]
    assert any(f"{make_task().timed[0].label} +4" in line for line in plain(roofline.draw(same, 80, 12)))


def test_without_a_roof_the_speedup_is_shown() -> None:
    lines = plain(roofline.draw(rows(roofline=None), 80, 16))
    assert lines[0].startswith("speedup over the baseline")
    assert any("1.00x┤" in line for line in lines)
    assert plain(roofline.draw([], 80, 16)) == ["no row has been timed yet"]
    assert roofline.draw(rows(), 10, 16) == []


@pytest.mark.parametrize(
    ("dtype", "count"), [("bfloat16", 200), ("float8_e4m3fn", 100), ("bool", 100), ("int64", 800), ("complex64", 800)]
)
def test_sizes_count_all_tensors(dtype: str, count: float) -> None:
    assert roofline.bytes_of([InputForm("x", (10, 10), (10, 1), dtype), InputForm("eps", value=1e-6)]) == count
    assert roofline.size(1_500_000) == "1.5 MB"


@pytest.mark.anyio
async def test_a_key_exchanges_the_plots(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run())
        await settle(pilot)
        await pilot.press("p")  # there is no plot yet
        await settle(pilot)
        assert "o geomean" in screen_text(app)
        await pilot.press("p")
        await settle(pilot)
        assert "by size" in screen_text(app)
        assert "o geomean" not in screen_text(app)
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert "Rows by size" in screen_text(app)
        assert "o geomean" in screen_text(app)  # where there is room for two, both show
        await pilot.press("p")
        await settle(pilot)
        assert "Trajectory" in screen_text(app)


@pytest.mark.anyio
async def test_a_first_run_shows_its_rows_and_no_empty_trajectory(engine: FakeEngine) -> None:
    engine.history = engine.history[:1]
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run())
        await settle(pilot)
        assert "Rows by size" in screen_text(app)
        assert "Cases over iterations" not in screen_text(app)
