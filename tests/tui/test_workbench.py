"""What the keys do and what events change, on the real screen with a fake engine."""

from __future__ import annotations

import gc
import re
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Literal

import pytest
from textual.widgets import Input

from harness.shared import findings
from harness.shared.codes import explain
from harness.shared.errors import UserError, Where
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from kernbench.events import (
    BuildFailed,
    Event,
    LogLine,
    Notice,
    RunCancelled,
    RunFinished,
    TaskLoaded,
    WorkerChanged,
    Worst,
)
from kernbench.tui import screen
from kernbench.tui.actions import draft_file
from kernbench.tui.pages.dialogs import Page
from kernbench.tui.pages.help import Help
from kernbench.tui.panes.output import MOST_LINES
from kernbench.tui.text.status_text import FILTERED
from tests.tui.scene import (
    BROKEN,
    H200,
    STARTED,
    TASKS,
    FakeEngine,
    checked_only,
    crashed,
    export_svg,
    landed,
    make_app,
    progress,
    right,
    screen_text,
    settle,
    summary,
    until,
    whole_run,
    wrong,
)

pytestmark = pytest.mark.anyio
READY = WorkerChanged("ready", H200)


async def test_the_engine_starts_after_the_first_paint_and_is_closed(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: engine.started and engine.selected)
        assert engine.started
        assert engine.selected == app.board.cases[0].id
    assert engine.closed


async def test_an_engine_that_cannot_start_leaves_the_screen_up() -> None:
    class Stillborn(FakeEngine):
        async def start(self) -> None:
            raise OSError("no [such] python")

    app = make_app(Stillborn())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app._notifications)
        assert [note.message for note in app._notifications] == ["cannot start the engine: no [such] python"]
        assert "norm_scale_shift" in screen_text(app)


async def test_garbage_is_collected_after_the_first_paint_even_if_the_log_cannot_be_read(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def unreadable() -> None:
        raise OSError("runs.jsonl: Input/output error")

    monkeypatch.setattr(engine, "read", unreadable)
    engine.is_long = True
    app = make_app(engine)
    request.addfinalizer(gc.unfreeze)
    request.addfinalizer(gc.enable)
    gc.disable()  # as `open` does
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app._notifications)
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0


async def test_an_entry_that_a_shell_made_appears(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "LOOK_SECONDS", 0.05)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("i")
        await settle(pilot)
        assert "from a shell" not in screen_text(app)
        engine.history.append(summary(99, hypothesis="from a shell"))
        engine.changed = True
        await until(pilot, lambda: "from a shell" in screen_text(app))
        assert "from a shell" in screen_text(app)
        assert not engine.changed


async def test_a_log_that_cannot_be_read_for_a_moment_is_read_later(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "LOOK_SECONDS", 0.05)
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("i")
        changed = engine.changed_elsewhere

        async def stale() -> bool:
            raise UserError("runs.jsonl cannot be read: Stale file handle")

        monkeypatch.setattr(engine, "changed_elsewhere", stale)
        await until(pilot, lambda: app._notifications)
        said = [note.message for note in app._notifications]
        assert said == ["cannot re-read the log: runs.jsonl cannot be read: Stale file handle"]
        monkeypatch.setattr(engine, "changed_elsewhere", changed)
        engine.history.append(summary(99, hypothesis="from a shell"))
        engine.changed = True
        await until(pilot, lambda: "from a shell" in screen_text(app))
        assert "from a shell" in screen_text(app)


async def test_rows_are_dim_until_they_land(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        results = app.main.results
        engine.say(READY, STARTED, *landed(right(1)))
        await settle(pilot)
        styles = [{style for _, style in results.line(index, 78)} for index in (0, 1)]
        assert styles[0] == {"dim"}
        assert "faster" in styles[1]


async def test_a_fresh_task_has_rows_without_numbers() -> None:
    app = make_app(FakeEngine(fresh=True))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        text = screen_text(app)
        assert "wan 75600x5120" in text
        assert "no result yet" in text


async def test_brackets_are_not_markup(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        engine.say(READY, *whole_run(), LogLine("loaded w[/b] [red]x[bf16]"), Notice("kept m[bf16] [/x]"))
        await settle(pilot)
        await pilot.press("5")
        await until(pilot, lambda: "loaded w[/b]" in screen_text(app))
        text = screen_text(app)
        assert "qwen m[bf16] 47" in text
        assert "loaded w[/b] [red]x[bf16]" in text
        assert "kept m[bf16] [/x]" in text
        await pilot.press("i", "enter")
        assert "hypothesis  m[bf16] loads" in screen_text(app)


async def test_escape_sequences_of_the_kernel_do_not_reach_the_terminal(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(LogLine("\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07end\rx"))
        await pilot.press("5")
        await settle(pilot)
        assert "  red endx\n" in screen_text(app)


async def test_a_failed_build_takes_the_second_line(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, STARTED, BROKEN)
        await settle(pilot)
        lines = screen_text(app).splitlines()
        assert lines[1].strip() == "solution.py:41: undefined name 'BLOCK'  (e: open it)"
        assert app.editor.error_place() == BROKEN.where
        await pilot.press("t")
        await pilot.pause()
        assert "NameError: name 'BLOCK'" in screen_text(app)
        await pilot.press("t")
        await pilot.pause()
        assert "NameError" not in screen_text(app)
        engine.say(*whole_run())
        await settle(pilot)
        assert app.editor.error_place() == Where("solution.py")


async def test_t_shows_the_traceback_of_the_selected_row_or_of_the_first_that_has_one(engine: FakeEngine) -> None:
    app = make_app(engine)
    long = "ValueError: " + "m[bf16] " * 20 + "the end"
    raised = CaseResult(right(2).id, "runtime_error", detail="ValueError", traceback=f"Traceback\n{long}")
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(crashed(1), raised))
        await settle(pilot)
        await pilot.press("t")
        await settle(pilot)
        first = screen_text(app)
        assert "Traceback of wan 74088x5120: crashed" in first
        assert 'File "solution.py", line 57 in kernel' in first
        await pilot.press("t", "g", "down", "down", "enter")  # from the row's own page
        await settle(pilot)
        await pilot.press("t")
        await settle(pilot)
        assert "Traceback of qwen 4096x3072: error" in screen_text(app)
        assert "the end" in screen_text(app)  # wrapped, not cut
        await pilot.press("escape", "escape")
        engine.say(*whole_run())
        await settle(pilot)
        await pilot.press("t")
        assert app.screen is app.main


async def test_the_cursor_is_on_the_row_that_the_hint_names_until_the_user_moves_it(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, STARTED, *landed(right(0), wrong(2)))
        await settle(pilot)
        assert app.main.results.cursor == 0  # the run may still fail elsewhere
        engine.say(*whole_run(wrong(2)))
        await settle(pilot)
        assert app.main.selected_row is not None
        assert app.main.selected_row.case.id == engine.selected == wrong(2).id
        engine.say(*whole_run(wrong(1)))
        await settle(pilot)
        assert app.main.results.cursor == 1
        await pilot.press("down", "down")
        engine.say(*whole_run(wrong(2)))
        await settle(pilot)
        assert app.main.results.cursor == 3


async def test_the_cursor_comes_back_when_no_row_fails_any_more(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 9)) as pilot:
        engine.say(READY, *whole_run(wrong(4)))
        await settle(pilot)
        assert (app.main.results.cursor, engine.selected) == (4, wrong(4).id)
        engine.say(*whole_run())
        await settle(pilot)
        assert (app.main.results.cursor, app.main.results.scroll_offset.y) == (0, 0)
        assert engine.selected == app.main.results.cases[0].id


async def test_the_cursor_stays_on_the_failing_row_when_rows_are_sorted_or_filtered(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(wrong(2)))
        await settle(pilot)
        for key in "sss":
            await pilot.press(key)
            assert app.main.selected_row is not None
            assert app.main.selected_row.case.id == wrong(2).id


async def test_another_task_that_opens_while_the_log_is_read_starts_once() -> None:
    reads, is_read, starts = threading.Event(), threading.Event(), list[FakeEngine]()

    class Slow(FakeEngine):
        def read(self) -> None:
            if self is slow:
                reads.set()
                is_read.wait(10)

        async def start(self) -> None:
            starts.append(self)

    slow, following = Slow(), Slow()
    slow.is_long = True
    app = make_app(slow, tasks=SimpleNamespace(open=lambda folder: following))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, reads.is_set)
        app._switch_soon("/elsewhere")
        await until(pilot, lambda: bool(starts))
        is_read.set()
        await settle(pilot)
        await settle(pilot)
    assert starts == [following]


async def test_help_opens_on_every_page(engine: FakeEngine) -> None:
    app = make_app(engine, tasks=TASKS)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(crashed(0)))
        await settle(pilot)
        for keys in (["enter"], ["t"], ["4", "enter"], ["4", "enter", "R"], ["d"], ["b"], ["w"], ["T"]):
            await pilot.press(*keys)
            await settle(pilot)
            assert app.screen is not app.main
            await pilot.press("question_mark")
            assert isinstance(app.screen, Help), keys
            while app.screen is not app.main:
                await pilot.press("escape")
            await pilot.press("1")


async def test_help_opens_as_the_first_time(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await settle(pilot)
        first = screen_text(app)
        for keys in (["n", "enter"], ["pagedown", "escape"], ["n", "ctrl+p", "escape", "down", "enter"]):
            await pilot.press(*keys)
            await settle(pilot)
            assert app.screen is app.main, keys
            await pilot.press("question_mark")
            await settle(pilot)
            assert screen_text(app) == first, keys
        await pilot.press("n", "ctrl+p", "escape")
        await settle(pilot)
        assert app.screen.query_one(Input).value == "n"  # the palette only covered it


async def test_e_says_why_where_the_terminal_cannot_be_lent(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        engine.say(READY, STARTED, BROKEN)
        await settle(pilot)
        await pilot.press("e")
        await pilot.pause()
        assert any("solution.py:41" in note.message for note in app._notifications)


async def test_an_editor_that_is_no_command(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "vi 'unclosed")
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("e")
        await pilot.pause()
        assert [note.message.startswith("EDITOR=") for note in app._notifications] == [True]


async def test_an_entry_that_is_gone(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(number: int, source: str, at: str) -> str:
        raise KeyError(number)

    monkeypatch.setattr(engine, "text", gone)
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("i", "enter")
        await pilot.pause()
        assert [note.message for note in app._notifications] == ["cannot read iteration 12: 12"]


async def test_a_click_on_a_key_presses_it(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        assert await pilot.click("KeyLine", offset=(11, 0))
        await pilot.pause()
        assert engine.reruns == 1


async def test_a_picture_can_be_exported(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        svg = export_svg(app)
        assert svg.startswith("<svg")
        assert "qwen&#160;m[bf16]&#160;47" in svg


async def test_run_and_pause(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY)
        await pilot.press("r", "space")
        await settle(pilot)
        assert (engine.reruns, engine.paused) == (1, True)
        assert "paused" in screen_text(app).splitlines()[0]
        assert "space resume" in screen_text(app)
        engine.say(Notice("paused: press space to run this save"))
        await until(pilot, lambda: app._notifications)
        await pilot.press("space")
        assert not engine.paused
        assert not app._notifications
        assert "space pause" in screen_text(app)


async def test_the_hint_is_of_the_run_that_is_on() -> None:
    engine = FakeEngine(fresh=True)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, replace(STARTED, reason="open"))
        await settle(pilot)
        assert "rows fill in as they finish" in screen_text(app)
        engine.say(*whole_run(), replace(STARTED, reason="key"))
        await settle(pilot)
        assert "dim numbers are older than this run; rows" in screen_text(app)
        engine.say(STARTED)
        await settle(pilot)
        assert "dim numbers are older than this save; rows" in screen_text(app)


async def test_the_hint_names_what_was_found_about_the_whole_run(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(160, 48)) as pilot:
        both = findings.make("forked"), findings.make("clock_replaced", names="time.time")
        engine.say(READY, *whole_run(findings=both))
        await settle(pilot)
        assert "clock replaced: the source replaced time.time" in screen_text(app)
        engine.say(*whole_run(findings=(findings.make("forked"),)))
        await settle(pilot)
        assert "forked: the source forked, and the child returned" in screen_text(app)
        engine.say(*whole_run(wrong(0), findings=(findings.make("forked"),)))
        await settle(pilot)
        assert "1 row failed" in screen_text(app)


async def test_the_hint_names_a_row_that_can_be_seen(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(wrong(0), wrong(2)))
        await settle(pilot)
        assert "2 rows failed, first wan 75600x5120 (WRONG): enter on it for details" in screen_text(app)
        for typed, hint in {
            "qwen": "2 rows failed, first shown: qwen 4096x3072 (WRONG): enter on it for details",
            "mova": "2 rows failed, first wan 75600x5120 (WRONG): filtered out (esc: show all)",
        }.items():
            await pilot.press("slash", *typed, "enter")
            await settle(pilot)
            assert hint in screen_text(app)
            await pilot.press("escape")
            await settle(pilot)
            assert "2 rows failed, first wan 75600x5120 (WRONG): enter on it for details" in screen_text(app)


async def test_the_hint_names_a_row_to_open_and_no_second_worst(engine: FakeEngine) -> None:
    """The worst of the headline rows, which the summary names, may be unclear, or faster than the baseline."""
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        run = whole_run(worst=Worst(right(2).id, "qwen 4096x3072", 1.12))
        engine.say(READY, *run)
        await settle(pilot)
        assert "1 row slower than baseline: press enter on mova 101x1536 for details" in screen_text(app)
        slower = replace(right(1), speedup=0.8, low=0.79, high=0.81, verdict="slower")
        engine.say(*run[:-1], *landed(slower), run[-1])
        await settle(pilot)
        assert "2 rows slower than baseline: press enter on wan 74088x5120 for details" in screen_text(app)
        assert re.findall(r"worst \S+ \S+ \S+", screen_text(app)) == ["worst qwen 4096x3072 1.12x"]
        for typed, why in {"mova": "press enter on mova 101x1536 for details", "qwen": FILTERED}.items():
            await pilot.press("slash", *typed, "enter")
            await settle(pilot)
            assert f"2 rows slower than baseline: {why}" in screen_text(app)
            await pilot.press("escape")


async def test_hypothesis_and_next_step(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("h", *"m[x] r", "enter")
        await pilot.pause()
        assert engine.hypothesis == "m[x] r"
        assert not app._notifications
        assert "hypothesis: m[x] r" in screen_text(app)
        await pilot.press("x", "!", "enter")
        assert engine.next_step == "eight rows per block!"
        await pilot.press("h", "z", "escape")
        assert engine.hypothesis == "m[x] r"
        assert engine.reruns == 0


async def test_a_hypothesis_says_what_it_is_for(engine: FakeEngine) -> None:
    """For the next save, also right after an entry that has none; ctrl+t switches."""
    engine.entry_without_words = 12
    engine.history[-1] = replace(engine.history[-1], hypothesis="", at="2026-11-14T21:29:30+00:00", seconds=1.0)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY)
        await settle(pilot)
        await pilot.press("h")
        await pilot.pause()
        asked = screen_text(app)
        assert "What are you trying next?" in asked
        assert "for the next save; ctrl+t: for entry 12 instead" in asked
        await pilot.press("a", "enter")
        await settle(pilot)
        assert (engine.hypothesis, engine.history[-1].hypothesis) == ("a", "")
        await pilot.press("h", "ctrl+t", "b")
        await pilot.pause()
        assert "What did entry 12 try?" in screen_text(app)
        await pilot.press("enter")
        await settle(pilot)
        assert (engine.hypothesis, engine.history[-1].hypothesis) == ("a", "ab")


async def test_a_hypothesis_that_no_run_carried_is_there_at_the_next_start(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("h", "m", "left_square_bracket", "enter", "q")
    again = FakeEngine()
    again.state = engine.state
    app = make_app(again)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "hypothesis: m[" in screen_text(app)
        again.hypothesis = ""  # a run took it
        again.say(READY, *whole_run())
        await settle(pilot)
    assert draft_file.read(engine.state) == ""


async def test_a_hypothesis_stands_once_on_the_line(engine: FakeEngine) -> None:
    engine.hypothesis = "eight rows per block"
    app = make_app(engine)
    async with app.run_test(size=(200, 60)) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        assert screen_text(app).splitlines()[1].count("eight rows per block") == 1


async def test_choosing_a_baseline(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("b", "down", "enter")
        await pilot.pause()
        assert engine.baseline == "best"
        await pilot.press("b", "up", "escape")
        assert engine.baseline == "best"


async def test_a_baseline_whose_file_is_gone_is_said(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise UserError("there is no baseline.py in the task's folder")

    monkeypatch.setattr(engine, "set_baseline", gone)
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("b", "down", "enter")
        await pilot.pause()
        assert [note.message for note in app._notifications] == ["there is no baseline.py in the task's folder"]


async def test_the_cursor_stays_on_its_case(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down", "down", "down", "down")
        await pilot.pause()
        assert engine.selected == "smoke_3x64"
        engine.say(READY, *whole_run(checked_only("grid_2", "wrong")))
        await settle(pilot)
        assert app.main.results.selected.case.id == "smoke_3x64"
        assert "grid: 3/4 passed" in screen_text(app)
        assert "grid 2" in screen_text(app)
        await pilot.press("end")
        engine.say(*whole_run())
        await settle(pilot)
        assert app.main.results.selected is not None
        assert "grid: 4/4 passed" in screen_text(app)


async def test_enter_shows_a_row_and_it_follows_the_run(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(wrong(0)))
        await settle(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Page)
        assert "[4093, 1017]  1.24609   0.74609" in screen_text(app)
        engine.say(STARTED, *landed(right(0)))
        await settle(pilot)
        assert "us per call" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is app.main
        assert "1/10 passed" in screen_text(app)


async def test_the_row_page_opens_the_editor_and_copies(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "vim")
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(crashed(0)))
        await settle(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert "e edit  y copy  esc back  ? help" in screen_text(app)
        for key, said in (("e", "open solution.py:57 yourself"), ("y", "copied wan 75600x5120 to ")):
            await pilot.press(key)
            await settle(pilot)
            [notification] = app._notifications
            assert said in notification.message


async def test_a_notice_stays_in_the_log(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, Notice("only comments, formatting or unused files changed; not re-timed"))
        await pilot.press("5")
        await settle(pilot)
        assert "-- only comments, formatting or unused files" in screen_text(app)


async def test_a_cancelled_run_leaves_the_old_numbers(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, STARTED, progress("time", 1), RunCancelled("run13", "a newer save"))
        await settle(pilot)
        text = screen_text(app)
        assert "watching" in text
        assert "518.6" in text


GONE = BuildFailed("", "", "no such file", Where("solution.py"), status="bad_task")


@pytest.mark.parametrize(("broken", "word"), [([STARTED, BROKEN], "BUILD ERROR"), ([GONE], "BAD TASK")])
@pytest.mark.parametrize("width", [80, 120])
async def test_a_source_that_cannot_run_says_so_first(
    broken: list[Event], word: str, width: int, engine: FakeEngine
) -> None:
    app = make_app(engine)
    async with app.run_test(size=(width, 24)) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        assert "prev:" not in screen_text(app)
        engine.say(*broken)
        await settle(pilot)
        head, failure = screen_text(app).splitlines()[:2]
        assert re.match(rf" {word}  best 1\.31x  watching", head)
        assert "solution.py" in failure
        assert not any(row.fresh for row in app.board.rows())
        engine.say(STARTED)
        await settle(pilot)
        assert re.search(r"prev: ✓.* 1\.31x", screen_text(app).splitlines()[0])


async def test_figures_over_another_baseline_are_of_before(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(), replace(STARTED, run="run14", reason="key", baseline="best"))
        await settle(pilot)
        assert re.search(r"prev: ✓.* 1\.31x", screen_text(app).splitlines()[0])
        assert not any(row.fresh for row in app.board.rows())
        engine.say(RunFinished(summary(None, run="run14", source=STARTED.source, baseline="best")))
        await settle(pilot)
        assert "before:" not in screen_text(app)


async def test_a_file_that_came_back_has_its_figures_again(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run(), GONE, TaskLoaded(engine.task))
        await settle(pilot)
        assert "before:" not in screen_text(app)
        assert "#13" in screen_text(app).splitlines()[1]
        assert all(row.fresh for row in app.board.rows())


async def test_a_run_that_was_broken_off_leaves_the_figures_of_the_save_before(engine: FakeEngine) -> None:
    """Of another source, that is: a run at a key of the same one changes nothing that they say."""
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        cancelled = RunCancelled("run14", "a newer save")
        engine.say(READY, *whole_run(), replace(STARTED, run="run14", reason="key"), cancelled)
        await settle(pilot)
        assert "prev:" not in screen_text(app)
        engine.say(replace(STARTED, run="run14", source="ef56"), cancelled)
        await settle(pilot)
        head, second = screen_text(app).splitlines()[:2]
        assert re.search(r"prev: ✓.* 1\.31x", head)
        assert second.split()[1] == "#13"


@pytest.mark.parametrize(("status", "word"), [("wrong", "WRONG"), ("runtime_error", "FAILED")])
async def test_what_is_checked_and_wrong_has_no_speedup(status: str, word: str, engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        cpu = Environment(device="cpu", device_name="Neoverse N1, 2 cores", interpreted=True)
        events = whole_run(checked_only("smoke_3x64", status), environment=cpu)
        engine.say(WorkerChanged("ready", cpu), *events)
        await settle(pilot)
        head = screen_text(app).splitlines()[0]
        assert f"{word}: 1 of 10 cases" in head
        assert "checked" not in head


async def test_ascii_is_kept_whatever_the_compiler_says(engine: FakeEngine) -> None:
    """Errors, printed lines, tracebacks, notices and hypotheses are not ours to word."""
    app = make_app(engine, ascii_only=True)
    said = "‘expq’ was not declared – did you mean “exp2f”… naïve 漢字"
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        engine.hypothesis = "2 µs × 3"
        engine.say(READY, STARTED, LogLine(said), replace(BROKEN, message=said, traceback=said))
        await pilot.press("5")
        await settle(pilot)
        assert screen_text(app).isascii()
        plain = "'expq' was not declared - did you mean \"exp2f\"~ na?ve ????"
        assert screen_text(app).count("'expq'") == 3  # the line of the error, the pane's error, the printed line
        await pilot.press("+")
        await settle(pilot)
        assert screen_text(app).count(plain) == 3
        engine.say(Notice(said))
        await until(pilot, lambda: plain in screen_text(app).splitlines()[-2])
        assert plain in screen_text(app).splitlines()[-2]
        for keys in (["t"], ["h"], ["question_mark"], ["b"]):
            await pilot.press(*keys)
            await settle(pilot)
            assert screen_text(app).isascii(), keys
            await pilot.press("escape")


async def test_a_lost_worker_is_named(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, WorkerChanged("lost", None, "torch is not installed in [that] python"))
        await settle(pilot)
        lines = screen_text(app).splitlines()
        assert "no worker" in lines[0]
        assert lines[1].strip() == "torch is not installed in [that] python"


async def test_a_burst_is_painted_seldom(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        paints = []
        paint = app.main.paint
        app.main.paint = lambda: (paints.append(1), paint())[1]
        engine.say(READY, STARTED, *[progress("time", index % 5) for index in range(500)])
        await settle(pilot)
        assert 1 <= len(paints) <= 5
        assert "timing 5/10" in screen_text(app)


async def test_a_machine_that_stalls_at_any_moment_leaves_no_paint_out(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer of Textual's whose moment has passed by the time it starts never calls back."""
    app = make_app(engine)
    async with app.run_test(size=(160, 48)) as pilot:
        await settle(pilot)
        monkeypatch.setattr("textual.message_pump.MessagePump.set_timer", lambda *_, **__: None)
        engine.say(WorkerChanged("ready", H200), *whole_run(), LogLine("a line"))
        await until(pilot, lambda: app.settled)
        assert app.settled
        assert "a line" in screen_text(app)


async def test_the_log_is_bounded_and_counts_what_it_dropped(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(*[LogLine(f"line {index}") for index in range(MOST_LINES + 50)])
        await pilot.press("5")
        await settle(pilot)
        assert f"line {MOST_LINES + 49}" in screen_text(app)
        await pilot.press("home")
        await settle(pilot)
        assert "-- 50 earlier lines clipped" in screen_text(app)


@pytest.mark.parametrize(("size", "error_lines"), [((80, 24), 5), ((200, 50), 5)], ids=["whole pane", "stacked"])
async def test_the_newest_lines_stand_under_the_error(
    size: tuple[int, int], error_lines: int, engine: FakeEngine
) -> None:
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        engine.say(READY, STARTED, *[LogLine(f"line {index}") for index in range(60)], BROKEN)
        await settle(pilot)
        await pilot.press("5")
        await settle(pilot)
        pane = app.main.output

        def shown() -> list[str]:
            return [pane.render_line(y).text.strip() for y in range(pane.size.height)]

        error = ["solution.py:41", "41 | offsets = tl.arange(0, BLOCK)", "undefined name 'BLOCK'"]
        room = pane.size.height - error_lines
        assert shown()[:3] == error
        assert shown()[error_lines:] == [f"line {index}" for index in range(60 - room, 60)]
        await pilot.press("up", "up")
        engine.say(LogLine("line 60"))
        await settle(pilot)
        assert shown()[:3] == error
        assert shown()[-1] == "line 57"  # who scrolled is left where he is
        await pilot.press("end")
        engine.say(LogLine("line 61"))
        await settle(pilot)
        assert shown()[-1] == "line 61"


async def test_all_of_a_long_error_can_be_scrolled_to(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(200, 50)) as pilot:
        long = replace(BROKEN, message="\n".join(f"part {index}" for index in range(9)))
        engine.say(READY, STARTED, LogLine("printed"), long)
        await pilot.press("5")
        await settle(pilot)
        pane, seen = app.main.output, set()
        for _ in range(20):
            seen |= {pane.render_line(y).text.strip() for y in range(pane.size.height)}
            await pilot.press("up")
        assert {f"part {index}" for index in range(9)} <= seen
        assert "printed" in seen


@pytest.mark.parametrize(("reason", "word"), [("open", "opened"), ("save", "save"), ("key", "re-run")])
async def test_the_log_says_why_a_run_began(reason: Literal["open", "save", "key"], word: str) -> None:
    engine = FakeEngine()
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, replace(STARTED, reason=reason))
        await pilot.press("5")
        await settle(pilot)
        assert f"-- 21:29:58 {word}, source cd34ef56" in screen_text(app)


async def test_help_and_footer_name_only_keys_that_exist(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(100, 70)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        keys = {line.split("  ")[0].strip() for line in screen_text(app).splitlines()}
        assert {*"rhxeb?+mdsyYTnNw/", "space", "ctrl+p", "ctrl+c", "ctrl+z", "ctrl+q", "q"} <= keys
        commands = [command.title for command in app.get_system_commands(app.main)]
        assert {"run (rerun)", "why (hypothesis)", "pause", "baseline", "theme", "row", "entry"} <= set(commands)


async def test_the_palette_finds_an_action_by_its_long_name(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p", *"hypothesis")
        await until(pilot, lambda: "why (hypothesis)" in screen_text(app))
        assert "why (hypothesis)" in screen_text(app)
        await pilot.press("escape")
        [found] = [command for command in app.get_system_commands(app.main) if "hypothesis" in command.title]
        await found.callback()
        await until(pilot, lambda: "What are you trying next?" in screen_text(app))
        assert "What are you trying next?" in screen_text(app)


async def test_another_workbench_that_comes_or_goes_is_told(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "LOOK_SECONDS", 0.05)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY)
        await settle(pilot)
        engine.is_alone = False
        await until(pilot, lambda: "watching, shared" in screen_text(app))
        assert "watching, shared" in screen_text(app)
        engine.is_alone = True
        await until(pilot, lambda: "not alone" not in screen_text(app))
        assert "not alone" not in screen_text(app)


async def test_what_was_checked_comes_first_where_triton_is_interpreted(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(WorkerChanged("ready", Environment(device="cpu", device_name="Neoverse N1, 2 cores")))
        await settle(pilot)
        assert app.board.cases[0].id == "smoke_3x64"
        assert engine.selected == "smoke_3x64"
        assert "allowed" in screen_text(app)


async def test_the_order_is_the_same_before_and_after_the_worker_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernbench.tui.panes.gpu.looks_present", lambda: False)
    engine = FakeEngine(fresh=True)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        before = app.board.cases
        engine.say(WorkerChanged("ready", Environment(device="cpu", device_name="Neoverse N1, 2 cores")))
        why = explain("needs_gpu")._asdict()
        skipped = [CaseResult(case.id, "skipped", **why) for case in engine.task.timed]
        engine.say(STARTED, *landed(*skipped), RunFinished(summary(13)))
        await settle(pilot)
        assert app.board.cases == before
        assert before[0].id == "smoke_3x64"
        shown = screen_text(app)
        assert "skipped  needs a GPU\n" in shown
        assert "5 rows need a GPU: small cases are checked on the CPU, nothing is timed" in shown


async def test_a_row_that_does_not_fit_comes_last_and_one_not_reached_stays(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, STARTED)
        engine.say(*landed(CaseResult(right(1).id, "skipped", reason="after_crash")))
        engine.say(*landed(CaseResult(right(0).id, "skipped", reason="too_large")))
        await settle(pilot)
        ids = [case.id for case in app.board.cases]
        assert (ids[0], ids[-1]) == (right(1).id, right(0).id)
