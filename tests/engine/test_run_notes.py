"""What somebody typed is in the log or still waits: a file that cannot be changed this moment loses no words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.engine.jobs import Job
from kernbench.engine.run_notes import RunNotes
from kernbench.events import Summary
from kernbench.log.entries import iterations_file
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from tests.log.logs import Idle, make_log, rows_of, summary_of, write_entries

SAVE = Job("save", 0.0, iteration=True)
BUSY = "ITERATIONS.md was just saved by another program; try again (your note is kept for the next run)"


def attach(remarks: RunNotes, entry: Summary, job: Job) -> str:
    """What the session does once a run has its entry."""
    words = remarks.words_for(entry, job)
    return remarks.reword(entry, *words) if words is not None else ""


@pytest.fixture
def book(tmp_path: Path) -> Logbook:
    task = make_log(tmp_path / "t", 1, cases=2)
    write_entries(task)
    return Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench", task)


@pytest.fixture
def remarks(book: Logbook) -> RunNotes:
    return RunNotes(book, Idle())


@pytest.fixture
def saved_meanwhile(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Whoever changes an entry finds that the file was saved since it was read; `undo` ends that."""

    def refuse(path: Path, *_words: object) -> None:
        raise iterations_file.LogbookError(f"{path.name} was just saved by another program; try again")

    monkeypatch.setattr(iterations_file, "_replace", refuse)
    return monkeypatch


def run(book: Logbook) -> Summary:
    """A save that was begun before anybody said a word."""
    task = taskfile.load(book.path.parent)
    rows = rows_of(task, 2, 1.0, {}, 1)
    ended = replace(summary_of(task, 2, rows, []), hypothesis="", hypothesis_at="", hypothesis_by="")
    entered = book.enter(task, lambda: ended, {row.id: row for row in rows})
    book.journal.finish(entered, rows)
    return entered


def test_words_given_while_it_ran_are_kept_when_the_entry_cannot_be_changed(
    book: Logbook, remarks: RunNotes, saved_meanwhile: pytest.MonkeyPatch
) -> None:
    remarks.set_hypothesis(remarks.hypothesis_for(), "words typed while it ran")
    entered = run(book)
    assert attach(remarks, entered, SAVE) == BUSY
    assert remarks.hypothesis == "words typed while it ran"
    assert remarks.set_hypothesis(remarks.hypothesis_for(), "typed again") == BUSY
    assert remarks.hypothesis == "typed again"
    saved_meanwhile.undo()
    assert remarks.set_hypothesis(remarks.hypothesis_for(), "typed again") == f"entry {entered.iteration} was updated"
    assert remarks.hypothesis == ""  # else the next entry would carry it too
    assert "- hypothesis: typed again\n" in book.path.read_text()
    assert Journal(book.state).summaries[-1].hypothesis == "typed again"


def test_words_given_while_it_ran_are_written_into_the_entry(book: Logbook, remarks: RunNotes) -> None:
    remarks.hypothesis, remarks.next_step = "said while it ran", "and what comes then"
    entered = run(book)
    assert attach(remarks, entered, SAVE) == ""
    assert (remarks.hypothesis, remarks.next_step) == ("", "")
    text = iterations_file.entry_of(book.path, entered.iteration or 0) or ""
    assert "- hypothesis: said while it ran\n" in text
    assert "- next: and what comes then\n" in text


@pytest.mark.parametrize(
    ("during", "waits"), [("", "16-byte loads"), ("16-byte loads", "16-byte loads"), ("else", "else")]
)
def test_of_a_wrong_entry_the_hypothesis_waits_unless_another_was_given(
    book: Logbook, remarks: RunNotes, during: str, waits: str
) -> None:
    remarks.hypothesis = during
    entered = replace(run(book), right=False, hypothesis="16-byte loads")
    attach(remarks, entered, SAVE)
    assert remarks.hypothesis == waits


def test_a_next_step_edited_by_hand_is_what_is_offered_and_replaced(book: Logbook, remarks: RunNotes) -> None:
    remarks.set_next("try float4")
    book.path.write_text(book.path.read_text().replace("- next: try float4", "- next: try float8 first"))
    assert remarks.next_now() == book.iterations()[-1].next == "try float8 first"
    assert remarks.set_next("try float8, then two rows") == "entry 1 was updated"
    assert "- next: try float8, then two rows\n" in book.path.read_text()
    assert Journal(book.state).summaries[-1].next == remarks.next_now() == "try float8, then two rows"


def test_a_next_step_that_cannot_be_written_is_offered_again(
    book: Logbook, remarks: RunNotes, saved_meanwhile: pytest.MonkeyPatch
) -> None:
    assert remarks.set_next("a long paragraph") == BUSY
    assert remarks.next_now() == remarks.next_step == "a long paragraph"
    saved_meanwhile.undo()
    assert remarks.set_next(remarks.next_now()) == "entry 1 was updated"
    assert (remarks.next_now(), remarks.next_step) == ("a long paragraph", "")


def test_nor_is_one_lost_whose_line_was_taken_out(book: Logbook, remarks: RunNotes) -> None:
    book.path.write_text(book.path.read_text().replace("- next: -\n", ""))
    assert "edited by hand; change it there (your note is kept" in remarks.set_next("a long paragraph")
    assert remarks.next_now() == "a long paragraph"
