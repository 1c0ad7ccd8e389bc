"""Text that fits, columns by width, editors by name: the parts that need no screen."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from rich.cells import cell_len

from harness.shared import findings, stats
from harness.shared import format as fmt
from harness.shared.results import CaseResult, OtherSide, OutputError, Ratio, RoofBound
from harness.shared.task import Case, Task, Tolerance
from kernbench import report
from kernbench.events import Event, RunFinished, WorkerChanged
from kernbench.tui.actions import editor
from kernbench.tui.pages.picker import TaskPicker
from kernbench.tui.state.board import Board, GridCount, Row
from kernbench.tui.state.row_history import Outcome
from kernbench.tui.text import failure_text, result_columns, row_checks, row_detail
from kernbench.tui.text import status_text as words
from kernbench.tui.text.spans import Part, clean, clip, fit, pad, pad_name
from kernbench.tui.text.status_text import device
from kernbench.tui.widgets.line_filters import in_ascii
from kernbench.tui.widgets.status_line import StatusLine, changed
from tests.tui.scene import (
    H200,
    STARTED,
    FakeEngine,
    landed,
    make_task,
    right,
    screen_text,
    summary,
    unclear,
    undecided,
    until,
    wrong,
)


def in_form(interval: str, is_ascii: bool) -> str:
    return interval.replace("±", "+-") if is_ascii else interval


def text(spans: list[tuple[str, str]]) -> str:
    return "".join(part for part, _ in spans)


def rows() -> list[Row]:
    return [Row(case, right(index), True) for index, case in enumerate(make_task().cases[:5])]


def test_clip_counts_cells() -> None:
    assert clip("abcdef", 4) == "abc…"
    assert clip("漢字漢字", 5) == "漢字…"
    assert pad("漢", 4) == "漢  "
    assert pad("7", 3, right=True) == "  7"


def test_long_names_differ_at_their_ends() -> None:
    names = [f"group_norm_silu_channels_last_{size}_bf16" for size in ("64x64", "128x128")]
    assert [pad_name(name, 16) for name in names] == ["group_no…64_bf16", "group_no…28_bf16"]
    assert pad_name("short", 8) == "short   "
    assert [cell_len(pad_name("数" * 9, width)) for width in (1, 2, 3, 8, 20)] == [1, 2, 3, 8, 20]
    assert [pad_name(f"数据归一化核函数大形状{last}", 12) for last in "甲乙"] == ["数据归…状甲 ", "数据归…状乙 "]


def test_clean_keeps_brackets_and_drops_controls() -> None:
    assert clean("m[bf16]\x1b[2J\x00\tx\u202e") == "m[bf16] x"


def test_fit_shortens_in_order_and_gives_room_back() -> None:
    parts = [Part(("a long name", "name")), Part(("detail", "")), Part(("end",))]
    assert text(fit(parts, 40, (1, 0))) == "a long name  detail  end"
    assert text(fit(parts, 18, (1, 0))) == "a long name  end"
    assert text(fit(parts, 9, (1, 0))) == "name  end"
    assert text(fit(parts, 17, (0, 1))) == "name  detail  end"


@pytest.mark.parametrize("width", [30, 38, 60, 78, 100, 140, 200])
def test_no_line_is_wider_than_the_table(width: int) -> None:
    long = CaseResult(id="x", status="runtime_error", detail="m[bf16] " * 60)
    table = result_columns.choose(width, rows(), interpreted=False)
    unbuilt = replace(long, status="build_error")
    odd = [Row(make_task().cases[0], result, result is not None) for result in (long, unbuilt, None)]
    odd.append(Row(Case("rows=1,columns=65,of a grid", "rows=1,columns=65", "check"), long, True))
    for row in [*rows(), *odd]:
        assert len(text(result_columns.line(row, table, ascii_only=False))) <= width
    assert len(text(result_columns.header(table))) <= width


@settings(derandomize=True, deadline=None)
@given(some.floats(-5, 7), some.floats(0.001, 3), some.floats(0.001, 3), some.sampled_from((60, 78, 118, 200)))
def test_an_interval_is_whole_or_its_wider_half_or_absent(centre: float, down: float, up: float, width: int) -> None:
    estimate = stats.Estimate(centre, centre - down, centre + up)
    ratio = stats.ratio(estimate, 0.01)
    assert ratio is not None
    found = replace(right(0), speedup=ratio.speedup, low=ratio.low, high=ratio.high, verdict=ratio.verdict)
    table = result_columns.choose(width, rows(), False)
    cells = {column.name: column for column in table.columns}
    ends = [(1 - ratio.low / ratio.speedup) * 100, (ratio.high / ratio.speedup - 1) * 100]
    for is_ascii in (False, True):
        shown = result_columns._padded(cells["speedup"], Row(make_task().cases[0], found, True), found, table, is_ascii)
        speedup, _, interval = shown[0].strip().partition(" ")
        assert speedup == fmt.exact(ratio.speedup)
        whole = interval == in_form(fmt.spread(ratio), is_ascii)
        half = re.fullmatch(r"(?:±|\+-)(\d+)%", interval)
        assert whole or not interval or (half and float(half[1]) >= max(ends) - 0.5), (interval, fmt.spread(ratio))
        assert whole or width < 200 or len(fmt.spread(ratio)) + len(speedup) > 17


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (Ratio(2.677, 2.329, 6.826, "faster"), "2.677x -13+155%"),
        (Ratio(0.770, 0.585, 0.847, "slower"), " 0.770x -24+10%"),
        (Ratio(0.770, 0.077, 11.52, "unclear"), " 0.770x ±1397%"),
        (Ratio(12.677, 2.329, 36.826, "faster"), "12.677x        "),
        (Ratio(1.396, 1.3946, 1.3974, "faster"), " 1.396x ±0.1%"),
    ],
)
def test_both_ends_of_an_interval_are_in_the_narrow_table(ratio: Ratio, shown: str) -> None:
    found = replace(right(0), speedup=ratio.speedup, low=ratio.low, high=ratio.high, verdict=ratio.verdict)
    table = result_columns.choose(78, rows(), False)
    assert f"  {shown}  " in text(result_columns.line(Row(make_task().cases[0], found, True), table, False))


def test_a_failing_case_of_the_grid_has_room_for_its_name() -> None:
    row = Row(Case("g", "rows=33,columns=1000", "check"), wrong(2), True)
    assert text(result_columns.line(row, result_columns.choose(118, rows(), False), False)).startswith(
        "rows=33,columns=1000"
    )


def test_columns_join_by_importance() -> None:
    names = {width: [c.name for c in result_columns.choose(width, rows(), False).columns] for width in (38, 78, 200)}
    assert names[38] == ["ratio", "verdict"]
    assert names[78] == ["base", "now", "speedup", "verdict", "check", "best"]
    assert names[200][-4:] == ["best", "last", "error", "findings"]
    assert result_columns.choose(200, rows(), False).by_id
    assert not result_columns.choose(78, rows(), False).by_id


@pytest.mark.parametrize("width", [38, 60, 78, 90, 118, 160, 200])
def test_columns_stay_where_they_are_from_run_to_run(width: int) -> None:
    """Whatever the rows have to show: nothing yet, findings, a best, a failing row of the grid with a long name."""
    empty = [replace(row, result=None, before=None) for row in rows()]
    found, best = findings.make("nondeterministic"), Ratio(1.02, 1.01, 1.03, "faster")
    full = [
        replace(row, before=row.result, result=replace(row.result, findings=(found,), vs_best=best))
        if row.result
        else row
        for row in rows()
    ]
    grid = Row(
        Case("a_failing_case_of_the_grid_with_a_long_name", "a_failing_case_of_the_grid", "check"), wrong(2), True
    )
    chosen = [result_columns.choose(width, given, False) for given in (empty, full, [*full, grid])]
    places = {(table.case, tuple((item.name, item.width) for item in table.columns)) for table in chosen}
    assert len(places) == 1


def test_the_roof_names_its_bound() -> None:
    def shown(*bounds: RoofBound | None) -> list[str]:
        found = [
            replace(row, result=replace(row.result, roofline=0.64, bound=bound)) if row.result else row
            for row, bound in zip(rows(), bounds, strict=False)
        ]
        table = result_columns.choose(100, found, False)
        column = next(column for column in table.columns if column.name == "roof")
        cells = [result_columns._padded(column, row, row.result, table, False)[0] for row in found if row.result]
        return [column.title, *(cell.strip() for cell in cells)]

    assert shown(None, None) == ["% roof", "64", "64"]
    assert shown("memory", "memory") == ["% mem", "64", "64"]
    assert shown("compute", "compute") == ["% comp", "64", "64"]
    assert shown("memory", "compute", None) == ["% roof", "64 mem", "64 comp", "64"]


def test_the_row_page_has_the_sides_for_comparison() -> None:
    sides = (OtherSide("compile", 45.21, 1.234, 1.232, 1.236), OtherSide("fast.py", 30.0, 0.82, 0.81, 0.83))
    row = Row(make_task().cases[0], replace(right(0), others=sides), True)
    page = [text(line) for line in row_detail.lines(row, make_task())]
    assert "against compile       1.234x ±0.2%   45.21 us   decides nothing" in page
    assert "against fast.py       0.820x ±1.2%   30.00 us   decides nothing" in page


def test_the_row_page_has_the_rows_history_and_its_blocks_in_order() -> None:
    row = Row(make_task().cases[0], right(0), True)
    outcomes = [Outcome("ok", 0.9), Outcome("wrong"), Outcome("ok", 1.2), Outcome("ok", 1.6)]
    past = [(summary(number), outcome) for number, outcome in enumerate(outcomes, 9)]
    page = [text(line) for line in row_detail.lines(row, make_task(), past=past)]
    assert "iterations #9 to #12  ▁x▄█  0.900x to 1.600x over the baseline" in page
    assert "block by block, from 5% below the median to 5% above" in page
    drifts = replace(right(0), samples={"solution": (95.0, 100.0, 100.0, 100.0, 110.0)})
    page = [text(line) for line in row_detail.lines(Row(row.case, drifts, True), make_task(), past=past[:1])]
    assert "solution   ▁▅▅▅█" in page
    assert not any(line.startswith("iterations") for line in page)


def test_the_row_page_names_the_bound() -> None:
    row = Row(make_task().cases[0], replace(right(0), roofline=0.64, bound="compute"), True)
    page = "\n".join(text(line) for line in row_detail.lines(row, make_task(), 4e12))
    assert "64% of the compute roofline" in page
    assert "TB/s" not in page


def test_the_table_of_a_command_names_the_bound() -> None:
    task = make_task()
    results = {case.id: replace(right(index), roofline=0.64) for index, case in enumerate(task.cases[:2])}
    assert " % roof " in report.table(task, results)[0]
    results = {name: replace(row, bound="compute") for name, row in results.items()}
    assert " % comp " in report.table(task, results)[0]
    first = next(iter(results))
    mixed = report.table(task, {**results, first: replace(results[first], bound="memory")})
    assert [" % roof " in mixed[0], " 64 mem " in mixed[1], " 64 comp " in mixed[2]] == [True] * 3


def test_a_row_that_fails_says_why_in_place_of_numbers() -> None:
    table = result_columns.choose(78, rows(), False)
    line = text(result_columns.line(Row(make_task().cases[2], wrong(2), True), table, False))
    assert line == "qwen 4096x3072   WRONG    1.24609, not 0.74609 at out[4093, 1017]"
    skipped = CaseResult(id="s", status="skipped", detail="interpreter has no inline asm")
    line = text(result_columns.line(Row(Case("s", "small"), skipped, True), table, False))
    assert line.endswith("skipped  interpreter has no inline asm")


@pytest.mark.parametrize(
    ("said", "room", "short"),
    [
        ("out differs at [3, 17]: got 1.5, expected 2 (allowed 0.1)", 96, None),
        ("out differs at [3, 17]: got 1.5, expected 2 (allowed 0.1)", 95, "1.5, not 2 at out[3, 17]"),
        ("out differs at [3, 17]: got 1.5, expected 2 (allowed 0.1) (seed 4)", 30, "1.5, not 2 at out[3, 17]"),
        ("out differs at [3, 17]: got 1.5, expected 2", 18, "1.5, not 2 at out…"),
        ("out differs: got 1.5, expected 2", 20, "out 1.5, not 2"),
        ("out is nan at [3, 17], expected 0.75", 50, "nan, not 0.75 at out[3, 17]"),
        ("out has shape [3, 5120], expected [3, 5121]", 40, "out shape [3, 5120], not [3, 5121]"),
        ("the call wrote to its input 'x'", 12, "the call wr…"),
        (
            "AcceleratorError: CUDA error: an illegal memory access was encountered",
            40,
            "an illegal memory access was encountered",
        ),
    ],
)
def test_what_is_wrong_in_the_room_there_is(said: str, room: int, short: str | None) -> None:
    assert failure_text.brief(CaseResult("x", "wrong", detail=said), room) == (short or said)


def test_rows_of_a_table_are_worded_alike() -> None:
    """A short sentence that would fit whole is not told otherwise than its neighbours."""
    near = replace(wrong(0), detail="out differs at [0]: got 1, expected 2")
    rows_of = [Row(case, result, True) for case, result in zip(make_task().cases, (near, wrong(1)), strict=False)]
    table = result_columns.choose(78, rows_of, False)
    said = [text(result_columns.line(row, table, False)).partition("WRONG")[2] for row in rows_of]
    assert said == ["    1, not 2 at out[0]", "    1.24609, not 0.74609 at out[4093, 1017]"]


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((3, 4), (4, 1), True),
        ((3, 4), (1, 3), False),
        ((1, 4), (99, 1), True),
        ((3, 0), (7, 7), True),
        ((), (), True),
        ((3, 4), (0, 1), False),
    ],
)
def test_which_strides_say_something(shape: tuple[int, ...], strides: tuple[int, ...], contiguous: bool) -> None:
    assert row_checks.is_contiguous(shape, strides) is contiguous


def test_values_are_told_apart() -> None:
    near = CaseResult("x", "ok", error=OutputError(4.5e-8, None, 1e-5, "out", (3,), 0.008967061, 0.008967064))
    assert "0.008967061  0.008967064" in text([span for line in row_checks.errors(near) for span in line])


def test_a_value_that_is_not_finite_is_said() -> None:
    """NaN does not travel in JSON."""
    lost = CaseResult("x", "wrong", error=OutputError(None, None, 0.1, "out", (3, 17), None, 0.75))
    assert "[3, 17]  not finite      0.75" in text([span for line in row_checks.errors(lost) for span in line])


def test_only_the_tolerances_that_judged_a_row_are_named() -> None:
    both = {"bfloat16": Tolerance(5e-2, 5e-2), "float32": Tolerance(1e-5, 1e-5)}
    task = replace(make_task(), tolerance=both)
    out = OutputError(1e-3, None, 5e-2 + 5e-2 * 2.0, "out", (1, 2), -2.001, -2.0)
    case, other = Case("x", "x"), Case("y", "y", tolerance={"float32": Tolerance(0.5, 0.0)})
    assert list(row_checks.tolerances(task, case, CaseResult("x", "ok", error=out))) == ["bfloat16"]
    assert row_checks.tolerances(task, case, CaseResult("x", "ok")) == row_checks.tolerances(task, case, None) == both
    assert row_checks.tolerances(task, other, None) == {**both, **other.tolerance}


def page(task: Task, result: CaseResult) -> str:
    case = Case("x", "x")
    lines = row_detail.lines(Row(case, result, True), task)
    return "\n".join(text(line) for line in lines)


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "bit for bit"), (0.9923, "99.23% of values"), (0.999999, "99.99% of values"), (1e-6, "<0.01% of values")],
)
def test_a_row_says_how_much_of_it_equals_the_reference(share: float, words: str) -> None:
    line = f"\nequal to the reference: {words}"
    assert line in page(make_task(), CaseResult("x", "ok", exact=share))
    error = OutputError(1e-3, None, 1e-2, "out", (1, 2), -2.001, -2.0)
    assert line in page(make_task(), CaseResult("x", "ok", error=error, exact=share))
    assert "equal to the reference" not in page(make_task(), CaseResult("x", "ok", error=error))


def test_a_row_says_what_it_is_judged_by() -> None:
    bounds = {"float32": Tolerance(1e-5, 0.0, 0.99, 0.1)}
    task, row = replace(make_task(), tolerance=bounds), CaseResult("x", "ok")
    words = "float32 atol 1e-05 rtol 0 for 99% of values no error above 0.1"
    assert f"tolerance: {words}" in page(task, row)
    assert f"tolerance against the reference: {words}" in page(replace(task, judge="reference"), row)
    assert "judged by check() in reference.py" in page(replace(task, judge="check"), row)


@pytest.mark.parametrize(
    ("before", "now", "cells"),
    [
        ("2/10 passed", "2/10 passed", (0, 0)),
        ("2/10 passed", "3/10 passed", (0, 1)),
        ("at 9/10 passed", "at 10/10 passed", (3, 15)),
        ("漢 2 so far", "漢 3 so far", (3, 4)),
        ("timing", "", (0, 6)),
    ],
)
def test_only_the_cells_that_changed_are_sent(before: str, now: str, cells: tuple[int, int]) -> None:
    begin, end = changed([(before, "")], [(now, "")])
    assert (begin, end) == cells or (begin == end and cells == (0, 0))
    assert changed([(before, "dim")], [(before, "")]) == (0, len(before) + before.count("漢"))


def test_a_sentence_may_fill_the_line() -> None:
    long = CaseResult(id="x", status="runtime_error", detail="m[bf16] " * 60)
    line = text(
        result_columns.line(Row(make_task().cases[0], long, True), result_columns.choose(90, rows(), False), False)
    )
    assert len(line) > 85


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (GridCount(32, 32, 32, 0, True), "grid: 32/32 passed"),
        (GridCount(32, 5, 5, 0, True), "grid: 5/32 passed so far"),
        (GridCount(32, 32, 2, 27, True), "grid: 2/5 passed, 27 not run"),
        (GridCount(27, 27, 0, 27, True), "grid: 27 not run"),
    ],
)
def test_the_grid_in_one_line(grid: GridCount, said: str) -> None:
    assert text(result_columns.grid_line(grid)) == said


def test_a_row_without_a_baseline_time_shows_its_own() -> None:
    result = CaseResult(id="s", status="ok", solution_us=17.6, detail="baseline: still compiling", checked=1)
    line = text(
        result_columns.line(Row(Case("s", "small"), result, True), result_columns.choose(78, rows(), False), False)
    )
    assert "17.60" in line
    assert line.endswith("baseline: still compiling")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vi", ["vi", "+41", "/k/s.py"]),
        ("/usr/bin/nvim -p", ["/usr/bin/nvim", "-p", "+41", "/k/s.py"]),
        ("nano", ["nano", "+41", "/k/s.py"]),
        ("hx", ["hx", "/k/s.py:41"]),
        ("code --wait", ["code", "--wait", "-g", "/k/s.py:41"]),
        ("something", ["something", "/k/s.py"]),
    ],
)
def test_editors_open_at_the_line(name: str, words: list[str]) -> None:
    assert editor.command(name, Path("/k/s.py"), 41) == words


def test_without_a_line_or_an_editor() -> None:
    assert editor.command("vim", Path("/k/s.py"), None) == ["vim", "/k/s.py"]
    assert editor.chosen({}) == "vi"
    assert editor.chosen({"EDITOR": "nano", "VISUAL": "code"}) == "nano"


@pytest.mark.parametrize(
    ("name", "short"),
    [("NVIDIA H200", "H200"), ("AMD EPYC 9654 96-Core Processor", "EPYC 9654"), ("Neoverse-N1", "Neoverse-N1")],
)
def test_devices_by_their_short_names(name: str, short: str) -> None:
    assert device(name) == short


@pytest.mark.anyio
async def test_the_picker_returns_the_folder() -> None:
    tasks = [("softmax_host", "/k/softmax_host", "1.84x", "improved", "3 min"), ("rms[norm]", "/k/rms", "-", "-", "-")]
    app = TaskPicker(tasks)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "rms[norm]" in screen_text(app)
        await pilot.press("down", "enter")
    assert app.return_value == "/k/rms"


@pytest.mark.anyio
async def test_tasks_of_one_name_are_told_apart_and_found(tmp_path: Path) -> None:
    folders = [tmp_path / ("a" * 60) / place / "softmax" for place in ("first", "second")] + [tmp_path / "rms"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "task.toml").write_text('summary = "what is the same of both of them"\n')
    app = TaskPicker([(folder.name, str(folder), "-", "-", "-") for folder in folders])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        shown = screen_text(app).splitlines()
        assert "first/softmax" in shown[2]
        assert "second/softmax" in shown[3]
        await pilot.press("slash", *"secnd", "enter")
        await until(pilot, lambda: "no task matches" in screen_text(app))
        assert "no task matches" in screen_text(app)
        await pilot.press("enter", "escape")
        await until(pilot, lambda: "no task matches" not in screen_text(app))  # as that line says
        await pilot.press("slash", "escape")
        await until(pilot, lambda: "first/softmax" in screen_text(app))
        await pilot.press("slash", *"SOFT sec", "enter", "enter")
    assert app.return_value == str(folders[1])


@pytest.mark.anyio
async def test_the_picker_opens_no_task_file_that_is_none(tmp_path: Path) -> None:
    for name in ("fifo", "latin"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "fifo" / "task.toml")
    (tmp_path / "latin" / "task.toml").write_bytes(b'summary = "caf\xe9"')
    app = TaskPicker([(path.name, str(path), "-", "cannot be opened", "-") for path in tmp_path.iterdir()])
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.pause()
        assert screen_text(app).count("cannot be opened") == 2


@pytest.mark.anyio
async def test_the_picker_names_keys_as_the_settings_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "kernbench").mkdir()
    (tmp_path / "kernbench" / "config.toml").write_text('[keys]\nrerun = "f5,ctrl+r"\n')
    app = TaskPicker([("softmax", "/k/softmax", "-", "-", "-")])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: "re-run now" in screen_text(app))
        assert "f5, ctrl+r   re-run now" in screen_text(app)


@pytest.mark.anyio
async def test_the_picker_in_ascii() -> None:
    app = TaskPicker([("naïve", "/k/" + "very_long_" * 9, "1.84x", "improved", "3 min")], ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "na?ve" in screen_text(app)
        assert screen_text(app).isascii()


@pytest.mark.anyio
async def test_the_picker_says_what_a_task_is_and_knows_its_keys(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text('summary = "softmax of [rows]"\n')
    app = TaskPicker(
        [("softmax_host", str(tmp_path), "1.84x", "improved", "3 min"), ("gone", "/k/gone", "-", "-", "-")]
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        shown = screen_text(app)
        assert "softmax of [rows]" in shown
        assert "/k/gone" in shown
        await pilot.press("question_mark")
        await pilot.pause()
        assert "re-run now" in screen_text(app)
        await pilot.press("escape", "enter")
    assert app.return_value == str(tmp_path)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.314, "1.31x"), (12.0, "12.00x"), (0.05, "0.05x"), (0.0049, "0.0049x"), (0.000123, "0.00012x"), (None, "-")],
)
def test_a_speedup_is_never_rounded_to_nothing(value: float | None, text: str) -> None:
    assert fmt.times(value) == text


@pytest.mark.parametrize(("now", "text"), [(1.1, "1.10x"), (0.5, "0.50x"), (9.9, "9.90x"), (426.0, "426.00x")])
def test_a_leap_against_the_last_run_fits_its_column(now: float, text: str) -> None:
    row = Row(Case("a", "a"), None, True, CaseResult("a", "ok", speedup=1.0))
    assert result_columns._against_last(row, CaseResult("a", "ok", speedup=now)) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("error: ‘expq’ – “x” … 3 µs × 2 · ±1", "error: 'expq' - \"x\" ~ 3 us x 2 - ~1"),
        ("▲ faster │ ┌──┐", "^ faster | +--+"),
        ("naïve 漢字 🚀", "na?ve ???? ??"),
        ("❤️ 👩‍👩‍👧|", None),
    ],
)
def test_ascii_look_alikes_take_the_same_cells(text: str, plain: str | None) -> None:
    assert plain is None or in_ascii(text) == plain
    assert in_ascii(text).isascii()
    assert len(in_ascii(text)) == cell_len(text)


def board_of(*events: Event) -> Board:
    board = Board(make_task())
    for event in (WorkerChanged("ready", H200), *events):
        board.apply(event)
    return board


def test_an_undecided_run_says_so_and_offers_the_key() -> None:
    board, engine = board_of(STARTED, *landed(*unclear()), undecided()), FakeEngine()
    assert text(words.line_two(board, engine, 200)).startswith("norm_scale_shift  #13  undecided (shared GPU)  ")
    assert text(words.line_two(board, engine, 40)).startswith("#13  undecided (shared GPU)  ")
    assert words.hint(board, engine) == "undecided: 4 rows are unclear against the best (r: time again)"


def test_what_disturbs_a_run_is_named_while_it_runs_and_after() -> None:
    busy = findings.make("busy_machine", busy="1.9", cpus=2)
    row = replace(right(3), findings=(busy,))
    board, engine = board_of(STARTED, *landed(row)), FakeEngine()
    assert "unclear: busy machine" in text(words.line_two(board, engine, 100))
    assert text(words.line_two(board, engine, 40)).endswith("busy machine")
    quiet = board_of(STARTED, *landed(right(3)))
    assert "unclear" not in text(words.line_two(quiet, engine, 100))
    done = RunFinished(summary(13, run="run13", source=STARTED.source, counts={"ok": 1, "unclear": 1}))
    board.apply(done)
    quiet.apply(done)
    assert "wall 1.18x  1 unclear (busy machine)  " in text(words.line_two(board, engine, 200))
    assert "wall 1.18x  1 unclear  " in text(words.line_two(quiet, engine, 200))
    assert words.hint(board, engine) == "1 row unclear on a busy machine (r: time again)"
    assert words.hint(quiet, engine) == "1 row unclear (r: time again)"


def test_the_row_page_says_what_made_the_row_unclear() -> None:
    busy = findings.make("busy_machine", busy="1.9", cpus=2)
    row = Row(make_task().cases[3], replace(right(3), findings=(busy,)), True)
    page = [text(line) for line in row_detail.lines(row, make_task())]
    assert (
        "  busy machine: other programs kept 1.9 of 2 CPUs busy while this was timed, which makes times unclear; "
        "time it again when they are done"
    ) in page


def test_the_state_tells_of_a_save_that_waits_and_of_another_workbench() -> None:
    board, engine = Board(make_task()), FakeEngine()
    board.apply(WorkerChanged("ready", H200))
    assert words.state(board, engine) == ("watching",)
    engine.is_alone = False
    assert words.state(board, engine)[-1] == "watching, shared"
    engine.paused = True
    assert words.state(board, engine) == ("paused",)
    engine.waits = True
    assert words.state(board, engine)[0] == "paused, save pending"


def test_an_unsteady_row_says_so_first() -> None:
    differs = "output 0 differs at [0, 0]: got 0.5, expected 0.25 (allowed 1e-05)"
    assert failure_text.brief(CaseResult("a", "wrong", detail=differs), 60) == "0.5, not 0.25 at output 0[0, 0]"
    unsteady = CaseResult("a", "wrong", detail=f"unsteady: wrong in one of two runs; {differs}")
    assert failure_text.brief(unsteady, 60) == "unsteady: wrong in one of two runs; output 0[0, 0] 0.5, not…"


def test_a_line_is_compared_with_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh may be lost together with a new layout: the end of a longer text stayed on the screen."""
    line, asked = StatusLine(id="hint"), list[int]()
    monkeypatch.setattr(line, "refresh", lambda region: asked.append(region.right))
    for text, is_drawn in (("confirmed as best, judged", True), ("a shorter one", False), ("short", True)):
        line.show([(text, "")])
        if is_drawn:
            line.line(0, 80)
    line.show([("shorter", "")])
    assert asked == [25, 25, 25, 7]
