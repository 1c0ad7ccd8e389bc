"""`kernbench drop`: removes an entry from ITERATIONS.md. Its text is kept in runs.jsonl, and `--undo` puts it back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench.events import Summary
from kernbench.log import best as best_source
from kernbench.log import stored_sources
from kernbench.log.entries import entry_text, iterations_file, trailer
from kernbench.log.entries.log_lock import LogbookError
from kernbench.log.runs.journal import DroppedEntry, Journal


class DropError(UserError):
    """The entry cannot be dropped or put back; one sentence."""


def find(task: Task, journal: Journal, number: int) -> Summary:
    """The only entry with this number."""
    found = stored_sources.entries_of(task).iterations(journal).with_number(number)
    if len(found) > 1:
        raise DropError(f"{stored_sources.taken_twice(number)}; remove one of them in ITERATIONS.md")
    if not found:
        again = "; it was already dropped: `--undo` puts it back" if _last_dropped(journal, number) else ""
        raise DropError(f"the log of {task.name} has no entry {number}{again}")
    return found[0]


def doubt(task: Task, journal: Journal, entry: Summary) -> str:
    """Why the user has to confirm; empty if every line is as kernbench wrote it."""
    if entry.local_run is not entry:
        return "it is from another machine, so kernbench cannot tell whether it was edited by hand"
    made = journal.summary(entry.run)
    assert made is not None  # it is of this machine
    number, rows = made.iteration or 0, (journal.landed_in(made.run), journal.cases_of(made.run))
    words = (made, replace(made, confirmed=None))  # an entry that was locked or edited keeps the word `best?`
    wrote = [_lines(entry_text.EntryText(task, item, results)(number)) for results in rows for item in words]
    entries = stored_sources.entries_of(task)
    entries.of(journal)
    return "" if _lines(entries.edited.text_of(entry)) in wrote else "it has lines added or changed by hand"


def drop(task: Task, journal: Journal, entry: Summary) -> bool:
    """Removes the entry; returns whether it was the best."""
    best = best_source.find(task, journal, stored_sources.entries_of(task)).key
    run, stored = entry.run if entry.local_run is entry else "", list[DroppedEntry]()

    def store(text: str) -> None:
        stored.append(_dropped(entry.iteration or 0, run, text))
        journal.drop(stored[0])

    try:
        iterations_file.remove(_log(task), entry, store)
    except LogbookError:
        for item in stored:  # another program just saved the file: the entry is still in it
            journal.undrop(item)
        raise
    return best is not None and best[0] == entry.iteration


def undo(task: Task, journal: Journal, number: int) -> None:
    last = _last_dropped(journal, number)
    if last is None:
        raise DropError(f"entry {number} of {task.name} was not dropped here: nothing to put back")
    iterations_file.put_back(_log(task), number, last.text.encode(last.encoding).decode("utf-8", "surrogateescape"))
    journal.undrop(last)


def _dropped(number: int, run: str, text: str) -> DroppedEntry:
    data = text.encode("utf-8", "surrogateescape")
    try:
        return DroppedEntry(number, data.decode(), run)
    except UnicodeDecodeError:
        return DroppedEntry(number, data.decode("latin-1"), run, "latin-1")


def _last_dropped(journal: Journal, number: int) -> DroppedEntry | None:
    return next((entry for entry in reversed(journal.dropped) if entry.iteration == number), None)


def _lines(text: str) -> list[str]:
    """As people read it, without empty lines and what a profile, a second try or a confirmation added later.

    The trailer does not count: numbers had six digits in it before they had eight.
    """
    lines = [line.rstrip("\r") for line in trailer.without(text).split("\n")]
    added = ("evidence", entry_text.SECOND_TRY, entry_text.CONFIRMED, entry_text.REFUSED)
    return [line for line in lines if line and not any(entry_text.mark_of(line, name) for name in added)]


def _log(task: Task) -> Path:
    return Path(task.folder) / "ITERATIONS.md"
