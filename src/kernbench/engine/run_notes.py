"""The user's words about a run: its hypothesis and the next step.

Words given before a run wait here, and its entry takes them; the hypothesis of a source that fails waits on, for its
fix. Words given during the run, or after a save that had none, are written into the entry of that run; if the file
cannot be changed right now, they wait for the next run. The screen and the commands set and read the words; the session
reports saves and new entries.
"""

from __future__ import annotations

from typing import Protocol

from kernbench.engine.jobs import Job
from kernbench.events import Summary
from kernbench.log.entries.log_lock import LogbookError
from kernbench.log.logbook import Logbook
from kernbench.log.runs.runs_file import JournalError

WAITS = "your note is kept for the next run"


class RunSlot(Protocol):
    """The runner, as far as notes need it."""

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""


class RunNotes:
    def __init__(self, logbook: Logbook, slot: RunSlot) -> None:
        self._logbook, self._slot = logbook, slot
        self.hypothesis = ""
        """For the next run."""
        self.next_step = ""
        """For the next entry, if there is no entry yet or the last one could not be changed."""
        self._owed = ""
        """A `hypothesis` that waits only because its own entry could not be changed."""
        self._saved_since = False
        """A save came after the last entry was written."""
        self._made: list[tuple[str, int | None]] = []
        """Run and number of each entry written for a save since the start, in order."""
        self._entered: set[str] = set()
        """Runs of all entries made since the start, also of those that wait to be written."""

    def set_hypothesis(self, number: int | None, text: str, instead_of: str = "") -> str:
        """Sets the hypothesis of an entry or, without a number, of the next run. Replaces an entry's words only if the
        user has seen them."""
        entry = None if number is None else self._entry(number)
        if entry is None or entry.hypothesis not in ("", instead_of, text):
            self.hypothesis = text
            if entry is None:
                return f"the next run will be logged {'with this' if text else 'without a'} hypothesis"
            rest = "yours goes with the next run" if text else "the next run will have none"
            return f"entry {number} already has a different hypothesis; {rest}"
        if self.hypothesis in (text, self._owed):
            self.hypothesis = ""  # else the next entry would carry it too
        return self.reword(entry, text, entry.next) or f"entry {number} was updated"

    def hypothesis_for(self) -> int | None:
        """Number of the entry that a hypothesis given now belongs to; None if it is for the next run."""
        last = self._logbook.last_entry()
        if last is None or last.hypothesis or self._saved_since or self._slot.running is not None:
            return None
        return last.iteration

    def made(self) -> int:
        """How many entries saves have made so far; `entry_after` counts from here."""
        return len(self._made)

    def entry_after(self, count: int, besides: str = "") -> int | None:
        """The entry of the first save after `count`, once written; `besides` is a run that was already in progress."""
        return next((number for run, number in self._made[count:] if run != besides), None)

    def logged(self) -> int:
        """How many entries made since the start are in the log now."""
        waiting = self._logbook.journal.waiting
        return sum(entry.run in self._entered and entry.run not in waiting for entry in self._logbook.iterations())

    def _entry(self, number: int) -> Summary | None:
        newest_first = reversed(self._logbook.journal.summaries)
        return next((entry for entry in newest_first if entry.iteration == number), None)

    def next_now(self) -> str:
        """The next step that `set_next` would change."""
        return self.next_step or self._logbook.next_step()

    def set_next(self, text: str) -> str:
        """Changes the next step of the last entry in place; if that fails, it waits for the next entry."""
        self.next_step = text
        try:
            number = self._logbook.set_next(text)
        except LogbookError as problem:
            return f"{problem} ({WAITS})" if text else str(problem)
        except JournalError as problem:  # ITERATIONS.md has it; only runs.jsonl does not
            self.next_step = ""
            return str(problem)
        if number is None:
            return "this next step will go into the first entry"
        self.next_step = ""
        return f"entry {number} was updated"

    def on_save(self) -> None:
        """A save came: words given from now on are not for the last entry."""
        self._saved_since = True

    def words_for(self, entry: Summary, job: Job) -> tuple[str, str] | None:
        """The hypothesis and next step given during the run, which its new entry is to have, unless it already had
        some; None if it has them. They wait no longer, unless `reword` cannot write them, or the source failed."""
        late, step = self.hypothesis, self.next_step
        self.hypothesis = self.next_step = self._owed = ""
        if late != entry.hypothesis and (entry.hypothesis or job.reason in ("key", "open")):
            self.hypothesis, late = late, entry.hypothesis  # meant for the next one
        if not entry.right:
            self.hypothesis = self.hypothesis or late
        self._saved_since = False
        self._entered.add(entry.run)
        if job.reason not in ("key", "open"):
            self._made.append((entry.run, entry.iteration))
        return (late, step) if (late, step) != (entry.hypothesis, entry.next) else None

    def reword(self, entry: Summary, hypothesis: str, step: str) -> str:
        """Writes words into an entry; on failure keeps them for the next run and returns why."""
        try:
            self._logbook.reword(entry, hypothesis, step)
        except JournalError as problem:  # ITERATIONS.md has them; only runs.jsonl does not
            return str(problem)
        except LogbookError as problem:
            if hypothesis != entry.hypothesis:
                self.hypothesis = self._owed = hypothesis
            if step != entry.next:
                self.next_step = step
            return f"{problem} ({WAITS})" if self.hypothesis or self.next_step else str(problem)
        return ""
