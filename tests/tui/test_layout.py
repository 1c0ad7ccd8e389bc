"""Which panes stand where, by size, and how they are reached."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.geometry import Size

from harness.shared.results import CaseResult
from kernbench.events import WorkerChanged
from kernbench.tui.layout import share
from kernbench.tui.panes.plot import Plot
from kernbench.tui.state.board import Row
from kernbench.tui.text import result_columns
from kernbench.tui.widgets.tab_line import fitting
from tests.tui.scene import (
    H200,
    STARTED,
    FakeEngine,
    landed,
    make_app,
    make_task,
    right,
    screen_text,
    settle,
    whole_run,
    wrong,
)

pytestmark = pytest.mark.anyio
ALL = ["results", "gpu", "profile", "iterations", "output"]


def shown(app: object) -> list[str]:
    main = app.main
    panes = (main.results, main.gpu, main.profile, main.iterations, main.output)
    return [pane.id for pane in panes if pane.size.area]


@pytest.mark.parametrize(
    ("size", "panes"),
    [
        ((40, 10), ["results"]),
        ((80, 24), ["results"]),
        ((109, 30), ["results"]),
        ((110, 30), ["results", "iterations"]),
        ((120, 40), ["results", "iterations"]),
        ((160, 30), ["results", "iterations"]),
        ((160, 48), ALL),
    ],
)
async def test_panes_by_size(size: tuple[int, int], panes: list[str], engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert shown(app) == panes
        assert "1.31x" in screen_text(app)


async def test_resizing_keeps_the_pane_in_use(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("5")
        await pilot.pause()
        for width, panes in (
            (120, ["results", "output"]),
            (80, ["output"]),
            (40, ["output"]),
            (160, ALL),
        ):
            await pilot.resize_terminal(width, 48)
            await pilot.pause()
            assert shown(app) == panes
            assert app.focused is app.main.output


async def test_tab_and_numbers_reach_every_pane(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        seen = []
        for key in ("tab", "tab", "tab", "tab", "tab", "shift+tab", "1", "2", "3", "4", "5", "i", "escape"):
            await pilot.press(key)
            await pilot.pause()
            assert shown(app) == [app.focused.id]
            seen.append(app.focused.id)
        assert seen == [*ALL[1:], "results", "output", *ALL, "iterations", "results"]


@pytest.mark.parametrize("width", [110, 119, 120, 159])
async def test_a_warning_of_the_last_pane_is_seen_however_narrow_the_side_is(width: int, engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(width, 30)) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run(wrong(2)))
        await settle(pilot)
        app.board.warning = "another process uses the GPU"
        app.main.paint()
        await settle(pilot)
        [tabs] = [line for line in screen_text(app).splitlines() if "Profile" in line]
        assert "GPU !" in tabs
        assert tabs.endswith("Output !")


def test_tabs_give_up_their_gaps_before_their_titles() -> None:
    panes = [("gpu", "GPU"), ("iterations", "Iterations"), ("output", "Output !")]

    def shown_in(width: int) -> str:
        return "".join(text for _, text in fitting(panes, "iterations", width)).rstrip()

    assert shown_in(29) == shown_in(0) == " GPU  [Iterations]  Output !"
    assert shown_in(27) == " GPU [Iterations] Output !"
    assert shown_in(25) == " GPU [Iters] Output !"


async def test_plus_gives_one_pane_the_screen(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await pilot.press("4", "plus")
        await pilot.pause()
        assert shown(app) == ["iterations"]
        await pilot.press("escape")
        await pilot.pause()
        assert shown(app) == ALL
        assert app.focused is app.main.iterations
        await pilot.resize_terminal(80, 24)
        await pilot.press("plus")
        await pilot.pause()
        assert [note.message for note in app._notifications] == ["this pane already fills the screen"]


async def test_a_click_on_a_tab_opens_the_pane(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.click("#tabs", offset=(33, 0))
        await pilot.pause()
        assert shown(app) == ["iterations"]
        await pilot.click("#iterations", offset=(5, 2))
        await pilot.pause()
        assert app.main.iterations.selected.iteration == 11


@pytest.mark.parametrize("label", range(15, 25))
async def test_a_scrollbar_cuts_no_title(label: int, engine: FakeEngine) -> None:
    """Failed rows of the grid make the table longer than the pane while a run lands."""
    task = make_task(grid=30)
    cases = [replace(case, label="g" * label) if case.kind == "check" else case for case in task.cases]
    engine.task = replace(task, cases=tuple(cases))
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run())
        await settle(pilot)
        failed = [CaseResult(f"grid_{number}", "wrong", detail="out differs") for number in range(30)]
        engine.say(STARTED, *landed(*failed))
        await settle(pilot)
        assert app.main.results.show_vertical_scrollbar
        shown = screen_text(app).splitlines()[2][:79]
        assert "".join(text for text, _ in app.main.results.header(77)).rstrip() == shown.strip()


@pytest.mark.parametrize("width", [60, 78, 100, 140])
def test_a_wide_interval_fits_in_ascii(width: int) -> None:
    wide = replace(right(0), low=right(0).speedup * 0.8, high=right(0).speedup * 1.2)
    table = result_columns.choose(width, [Row(make_task().cases[0], wide, True)], False)
    shown = "".join(text for text, _ in result_columns.line(Row(make_task().cases[0], wide, True), table, True))
    assert "+-20.0%" in shown or "+-" not in shown


@pytest.mark.parametrize(("total", "plot"), [(42, 17), (34, 9), (24, 0), (70, 30)])
def test_panes_of_a_column_get_what_they_need_and_the_plot_the_rest(total: int, plot: int) -> None:
    wanted = {"gpu": 3, "profile": 6, "iterations": 7, "output": 40}
    found = share(total, wanted, stacked=True, is_failed=False)
    assert sum(found.values()) == total or (total == 24 and sum(found.values()) < total)
    assert found["plot"] == plot
    assert found["gpu"] == 4
    failed = share(total, wanted, stacked=True, is_failed=True)
    assert failed["output"] > found["output"] or total == 24


@pytest.mark.anyio
async def test_a_plot_has_no_scrollbar_that_would_narrow_it(engine: FakeEngine) -> None:
    """One showed for a moment while a plot shrank, and what was drawn then stayed a cell too narrow."""
    app = make_app(engine)
    async with app.run_test(size=(200, 60)) as pilot:
        engine.say(*whole_run())
        await settle(pilot)
        shown = [view for view in (*app.main.query(Plot), app.main.heat) if view.display]
        assert len(shown) == 3
        for view in shown:
            view.virtual_size = Size(1, 99)
        await settle(pilot)
        assert all(view.line_width == view.size.width - len(view.GUTTER) for view in shown)
