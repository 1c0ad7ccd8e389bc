"""The boxes for words: what is typed goes where the box says, whatever is saved meanwhile, and is never lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.engine.jobs import Job
from kernbench.engine.run_notes import RunNotes
from kernbench.events import Summary, WorkerChanged
from kernbench.log import drop_entry
from kernbench.log.logbook import Logbook
from tests.log.logs import Idle, make_log, rows_of, summary_of, write_entries
from tests.tui.scene import H200, STARTED, TASKS, FakeEngine, make_app, screen_text, settle, until

READY = WorkerChanged("ready", H200)
SAVE, OPENED = Job("save", 0.0, iteration=True), Job("open", 0.0, iteration=True)


def attach(remarks: RunNotes, entry: Summary, job: Job) -> str:
    """What the session does once a run has its entry."""
    words = remarks.words_for(entry, job)
    return remarks.reword(entry, *words) if words is not None else ""


@pytest.fixture
def book(tmp_path: Path) -> Logbook:
    task = make_log(tmp_path / "t", 1, cases=2)
    write_entries(task)
    return Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench", task)


def save(book: Logbook, number: int, hypothesis: str = "") -> Summary:
    """A save that comes to an entry with these words."""
    task = taskfile.load(book.path.parent)
    rows = rows_of(task, number, 1.0, {}, 1)
    ended = replace(summary_of(task, number, rows, []), hypothesis=hypothesis, hypothesis_at="", hypothesis_by="")
    entered = book.enter(task, lambda: ended, {row.id: row for row in rows})
    book.journal.finish(entered, rows)
    return entered


def hypotheses(book: Logbook) -> list[str]:
    return [entry.hypothesis for entry in book.iterations()][1:]


def test_words_are_written_into_the_entry_that_was_named(book: Logbook) -> None:
    remarks = RunNotes(book, Idle())
    for number in (2, 3):
        remarks.on_save()
        attach(remarks, save(book, number), SAVE)
    assert remarks.set_hypothesis(2, "two rows a block") == "entry 2 was updated"
    assert hypotheses(book) == ["two rows a block", ""]
    assert remarks.hypothesis == ""


def test_words_that_nobody_has_seen_are_not_replaced(book: Logbook) -> None:
    remarks = RunNotes(book, Idle())
    attach(remarks, save(book, 2, "from elsewhere"), SAVE)
    said = remarks.set_hypothesis(2, "mine")
    assert said == "entry 2 already has a different hypothesis; yours goes with the next run"
    assert (hypotheses(book), remarks.hypothesis) == (["from elsewhere"], "mine")
    assert remarks.set_hypothesis(2, "better", instead_of="from elsewhere") == "entry 2 was updated"
    assert (hypotheses(book), remarks.hypothesis) == (["better"], "mine")


def test_which_entry_the_next_save_made(book: Logbook) -> None:
    remarks = RunNotes(book, Idle())
    count = remarks.made()
    attach(remarks, save(book, 2), OPENED)
    assert remarks.entry_after(count) is None
    under_way = save(book, 3, "its own")
    attach(remarks, under_way, SAVE)
    attach(remarks, save(book, 4), SAVE)
    assert remarks.entry_after(count) == 3
    assert remarks.entry_after(count, besides=under_way.run) == 4


def test_every_entry_counts_as_logged_while_the_log_has_it(book: Logbook) -> None:
    save(book, 2)
    remarks = RunNotes(book, Idle())
    attach(remarks, save(book, 3), OPENED)
    attach(remarks, save(book, 4), SAVE)
    assert (remarks.logged(), remarks.made()) == (2, 1)
    assert book.task is not None
    drop_entry.drop(book.task, book.journal, book.journal.summaries[-1])
    assert remarks.logged() == 1


def test_the_last_entry_can_have_words_after_a_restart(book: Logbook) -> None:
    save(book, 2)
    remarks = RunNotes(book, Idle())
    assert remarks.hypothesis_for() == 2
    remarks.on_save()
    assert remarks.hypothesis_for() is None


@pytest.mark.anyio
async def test_an_entry_that_the_box_names_gets_the_words_though_another_came(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        engine.say(READY)
        engine.enter(31)
        engine.entry_without_words = 31
        await settle(pilot)
        await pilot.press("h", "ctrl+t", *"slow")
        await until(pilot, lambda: "What did entry 31 try?" in screen_text(app))
        engine.enter(32)
        engine.entry_without_words = 32
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert {item.iteration: item.hypothesis for item in engine.history[-2:]} == {31: "slow", 32: ""}
        assert [note.message for note in app._notifications] == ["entry 31 was updated"]


@pytest.mark.anyio
async def test_the_next_save_may_be_made_while_the_box_is_open(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        engine.say(READY)
        await settle(pilot)
        await pilot.press("h", *"wide")
        await until(pilot, lambda: "What are you trying next?" in screen_text(app))
        engine.enter(13)
        engine.enter(14)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert {item.iteration: item.hypothesis for item in engine.history[-2:]} == {13: "wide", 14: ""}
        assert engine.hypothesis == ""
        assert [note.message for note in app._notifications] == ["entry 13 was updated"]


@pytest.mark.anyio
async def test_a_run_that_has_its_words_is_not_the_next_save(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, replace(STARTED, run="run13", hypothesis="its own"))
        await settle(pilot)
        await pilot.press("h", *"then")
        await until(pilot, lambda: app.screen is not app.main)
        engine.enter(13, "its own")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert (engine.history[-1].hypothesis, engine.hypothesis) == ("its own", "then")


@pytest.mark.anyio
@pytest.mark.parametrize("key", ["h", "x"])
async def test_what_was_typed_is_there_when_the_box_opens_again(key: str, engine: FakeEngine) -> None:
    app = make_app(engine, tasks=TASKS)
    async with app.run_test(size=(80, 24)) as pilot:
        before = engine.hypothesis, engine.next_step
        await pilot.press(key, *" zebra")
        await until(pilot, lambda: app.screen is not app.main)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert (engine.hypothesis, engine.next_step) == before
        assert "zebra" in app.notes.unsaved()[0]
        await pilot.press(key)
        await until(pilot, lambda: "zebra" in screen_text(app))
        assert "zebra" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert "zebra" in (engine.hypothesis if key == "h" else engine.next_step)
        assert app.notes.unsaved() == []


@pytest.mark.anyio
async def test_a_key_that_cannot_choose_says_why(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("h", "ctrl+t")
        await until(pilot, lambda: app._notifications)
        said = [note.message for note in app._notifications]
        assert said == ["entry 12 already has a hypothesis: this goes with the next save"]


@pytest.mark.anyio
async def test_ctrl_q_does_not_end_what_is_being_typed(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("h", *"one", "ctrl+q", *" two")
        await until(pilot, lambda: app.screen is not app.main)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert engine.hypothesis == "one two"
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running)
    assert engine.closed


def test_quitting_says_what_was_logged_and_where(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app = make_app(engine)
    engine.next_step = ""
    assert app.notes.on_leaving() == []
    engine.enter(13)
    monkeypatch.chdir("/")
    folder = engine.task.folder.removeprefix("/")
    assert app.notes.on_leaving() == [f"1 iteration logged in {folder}/ITERATIONS.md; best: #13 1.31x"]
    engine.enter(14)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert f" logged in /{folder}/ITERATIONS.md;" in app.notes.on_leaving()[0]
    monkeypatch.chdir("/")
    engine.notes.hypothesis = "two rows"
    said = app.notes.on_leaving()
    assert said[0].startswith("2 iterations logged in ")
    assert said[1] == 'kept for next time: hypothesis "two rows"'
