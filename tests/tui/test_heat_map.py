"""The heat map of cases over iterations, below the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from harness.shared.results import CaseResult
from kernbench.events import RunFinished, Summary, WorkerChanged
from kernbench.tui.layout import share_main
from kernbench.tui.panes import heat_map
from kernbench.tui.state.row_history import Outcome, RowHistory
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
    summary,
    until,
    wrong,
)


def history_of(count: int, speedup: float = 1.1) -> RowHistory:
    found = RowHistory()
    entries = [summary(number, run=f"run-{number}") for number in range(1, count + 1)]
    assert len(found.follow(entries)) == min(count, 160)
    for entry in entries:
        found.take(entry, [dataclasses.replace(right(0), speedup=speedup), wrong(1)])
    return found


def drawn(history: RowHistory, width: int = 78, height: int = 10, ascii_only: bool = False) -> list[str]:
    lines = heat_map.draw(history, make_task().timed, width, height, ascii_only)
    return ["".join(text for text, _ in line) for line in lines]


def test_a_line_per_case_and_a_cell_per_iteration() -> None:
    lines = drawn(history_of(3))
    assert lines[0].split() == ["#1", "#2", "#3"]
    assert lines[1].split()[2:] == ["░1.10"] * 3
    assert lines[2].split()[2:] == ["xxxxx"] * 3
    assert len(lines) == 2 + len(make_task().timed)
    narrow = drawn(history_of(50))
    assert narrow[1].endswith("░" * 50)
    assert narrow[2].endswith("x" * 50)
    assert all(len(line) <= 78 for line in narrow)


def test_signs_differ_where_there_are_no_colours() -> None:
    speedups = (0.5, 0.9, 1.0, 1.1, 1.2, 1.5, 2.5)
    outcomes = [
        *(Outcome("ok", speedup) for speedup in speedups),
        Outcome("wrong"),
        Outcome("interpreted"),
        Outcome(""),
    ]
    signs = [heat_map.sign_of(outcome)[0] for outcome in outcomes]
    assert len(set(signs)) == len(signs)
    plain = [sign.translate(heat_map.ASCII) for sign in signs]
    assert len(set(plain)) == len(plain)
    assert all(line.isascii() for line in drawn(history_of(30), ascii_only=True))


@pytest.mark.parametrize(
    ("speedup", "verdict", "sign"),
    [(1.3, "unclear", "?"), (0.97, "same", "·"), (1.01, "faster", "░"), (0.99, "slower", "▾"), (0.5, "slower", "▼")],
)
def test_a_sign_does_not_contradict_the_verdict(speedup: float, verdict: str, sign: str) -> None:
    assert heat_map.sign_of(Outcome("ok", speedup, verdict))[0] == sign


@pytest.mark.parametrize("count", [2, 9, 13, 40])
def test_the_newest_iteration_has_its_number(count: int) -> None:
    numbers = drawn(history_of(count))[0].split()
    assert numbers[-1] == f"#{count}"
    assert sorted(set(numbers), key=numbers.index) == numbers


def test_an_iteration_more_leaves_the_others_where_they_are() -> None:
    for count in (3, 12, 25, 40):
        before, after = drawn(history_of(count)), drawn(history_of(count + 1))
        assert len(after[1]) > len(before[1])
        assert all(new.startswith(old) for old, new in zip(before[1:-1], after[1:-1], strict=True))
    entries = [summary(number) for number in range(100)]
    firsts = [heat_map.newest(entries[:count], 40)[0].iteration for count in range(41, 100)]
    assert len(set(firsts)) <= 7  # it moves by tens
    assert all(len(heat_map.newest(entries[:count], 40)) <= 40 for count in range(100))


def test_what_does_not_fit_is_counted() -> None:
    assert drawn(history_of(3), height=5)[-1].endswith("2 cases not shown")
    assert drawn(history_of(3), height=4) == []
    assert drawn(history_of(1)) == []


@pytest.mark.parametrize(
    ("total", "heat", "plot"), [(36, 8, 19), (26, 8, 9), (25, 8, 0), (15, 6, 0), (14, 5, 0), (13, 0, 0), (5, 0, 0)]
)
def test_it_takes_only_lines_that_the_results_do_not_need(total: int, heat: int, plot: int) -> None:
    found = share_main(total, 9, 5, 8, has_plot=True)
    assert (found["heat"], found["wide-plot"]) == (heat, plot)
    assert found["results"] == (9 if heat or plot else total)


@pytest.mark.anyio
async def test_it_is_drawn_once_a_run_after_the_last_row(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    plain = heat_map.draw
    monkeypatch.setattr(heat_map, "draw", lambda *given: counted.append(1) or plain(*given))
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        engine.say(WorkerChanged("ready", H200))
        await until(pilot, lambda: "▓1.55" in screen_text(app))
        counted.clear()
        engine.say(STARTED, *landed(*(right(index) for index in range(5))))
        await settle(pilot)
        assert counted == []
        last = summary(13, run="run13", source=STARTED.source)
        engine.history.append(last)
        engine.say(RunFinished(last))
        await settle(pilot)
        assert len(counted) == 1
        assert "#13" in screen_text(app)
        assert "▒1.40" in screen_text(app)  # the new run's, not read from the log


@pytest.mark.anyio
async def test_it_shows_the_rows_that_pass_the_filter(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "▓1.55" in screen_text(app))
        await pilot.press("slash", *"mova", "enter")
        await settle(pilot)
        shown = screen_text(app)
        assert shown.count("mova 101x1536") == 2
        assert "wan" not in shown
        await pilot.press("escape")
        await settle(pilot)
        assert screen_text(app).count("wan 75600x5120") == 2


@pytest.mark.anyio
async def test_a_log_that_cannot_be_read_leaves_blanks(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(entry: Summary) -> Mapping[str, CaseResult]:
        raise OSError("gone")

    monkeypatch.setattr(engine, "rows", fails)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "#12" in screen_text(app))
        assert "Cases over iterations" in screen_text(app)
