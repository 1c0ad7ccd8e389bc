"""Which entry of a log is the best today: of those that once became best, all keep the word, and one of them still is.

It is the entry about the source that runs on this machine are timed against as `best`. Where no run here has settled
that (a log that was only pulled), it is the last one that the log itself calls best.
"""

from __future__ import annotations

from harness.shared.task import Task
from kernbench import render
from kernbench.events import Summary
from kernbench.log import stored_sources
from kernbench.log.entries.entry_list import Key, Listing, key_of
from kernbench.log.entries.pulled_entries import Entries
from kernbench.log.runs import comparison
from kernbench.log.runs.journal import Journal


def find(task: Task, journal: Journal, entries: Entries) -> Key | None:
    """None where nothing is best, or only a source that no entry is about."""
    try:
        best = stored_sources.best(task, journal, entries)
    except stored_sources.TrajectoryError:
        written = stored_sources.best_written(task, journal, entries)
        return key_of(written) if written else None
    return key_of(best) if best.iteration is not None else None


def listing(task: Task, journal: Journal, entries: Entries, series: comparison.Series | None = None) -> Listing:
    """The iterations, of which the best is known."""
    return entries.iterations(journal, series, lambda: find(task, journal, entries))


def outcome(listed: Listing, entry: Summary) -> str:
    """The word that an entry got when it was made, and whether it is the best today."""
    word = render.outcome(entry)
    if not listed.is_best_now(entry):
        return word
    return "best now" if word == "best" else f"{word}, best now"
