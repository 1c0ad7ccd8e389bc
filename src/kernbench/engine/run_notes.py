"""What a person says of a run: its hypothesis, and the next step.

Words given beforehand wait here for the run to come, which takes them into its entry. Those that come while it is on,
or after a save that had none, are written into the entry it made; where its file cannot be changed this moment, they
wait like the others. The screen and the commands give them and ask for them; the session says when something was saved
and when an entry was made.
"""

from __future__ import annotations

from typing import Protocol

from kernbench.engine.jobs import Job
from kernbench.events import Summary
from kernbench.log.entries.iterations_file import LogbookError
from kernbench.log.logbook import Logbook
from kernbench.log.runs.runs_file import JournalError

WAITS = "what was typed waits for the next run"


class RunSlot(Protocol):
    """What runs, as the runner knows it."""

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""


class RunNotes:
    def __init__(self, logbook: Logbook, slot: RunSlot) -> None:
        self._logbook, self._slot = logbook, slot
        self.hypothesis = ""
        """Of the run to come."""
        self.next_step = ""
        """Of the entry to come, while there is none yet that could carry it, or the last one could not be changed."""
        self._owed = ""
        """What waits in `hypothesis` only since its own entry could not be changed."""
        self._saved_since = False
        """Something was saved after the last entry was made."""
        self._made: list[tuple[str, int | None]] = []
        """Run and number of the entries that saves have made since the start, in their order."""

    def set_hypothesis(self, number: int | None, text: str, instead_of: str = "") -> str:
        """For an entry, or without a number for the run to come. Of an entry only those words are replaced that the
        person has seen."""
        entry = None if number is None else self._entry(number)
        if entry is None or entry.hypothesis not in ("", instead_of, text):
            self.hypothesis = text
            said = "the next run carries this hypothesis" if text else "the next run carries no hypothesis"
            return f"entry {number} has another hypothesis: {said}" if entry is not None else said
        if self.hypothesis in (text, self._owed):
            self.hypothesis = ""  # else the next entry would carry it too
        return self._reword(entry, text, entry.next) or f"entry {number} was updated"

    def hypothesis_for(self) -> int | None:
        """Number of the entry that a hypothesis given now may belong to; None when it is for the run to come."""
        last = self._logbook.last_entry()
        if last is None or last.hypothesis or self._saved_since or self._slot.running is not None:
            return None
        return last.iteration

    def made(self) -> int:
        """How many entries saves have made so far: from here `entry_after` counts."""
        return len(self._made)

    def entry_after(self, count: int, besides: str = "") -> int | None:
        """The entry of the save that came next, once it is made; `besides` is a run that was under way by then."""
        return next((number for run, number in self._made[count:] if run != besides), None)

    def _entry(self, number: int) -> Summary | None:
        newest_first = reversed(self._logbook.journal.summaries)
        return next((entry for entry in newest_first if entry.iteration == number), None)

    def next_now(self) -> str:
        """The next step that `set_next` would change."""
        return self.next_step or self._logbook.next_step()

    def set_next(self, text: str) -> str:
        """Next step of the last entry, in place; where that cannot be, it waits for the entry to come."""
        self.next_step = text
        try:
            number = self._logbook.set_next(text)
        except LogbookError as problem:
            return f"{problem} ({WAITS})" if text else str(problem)
        except JournalError as problem:  # the log, which people read, has it
            self.next_step = ""
            return str(problem)
        if number is None:
            return "the first entry will carry this next step"
        self.next_step = ""
        return f"entry {number} was updated"

    def on_save(self) -> None:
        """Something was saved: words are no longer for the entry before."""
        self._saved_since = True

    def attach_to(self, entry: Summary, job: Job) -> str:
        """The entry has taken its words; those given while it ran belong to it too, unless it had some.

        Says why they could not be written into it, where that is so: then they wait for the next run.
        """
        late, step = self.hypothesis, self.next_step
        self.hypothesis = self.next_step = self._owed = ""
        if late != entry.hypothesis and (entry.hypothesis or job.reason in ("key", "open")):
            self.hypothesis, late = late, entry.hypothesis  # meant for the next one
        self._saved_since = False
        if job.reason not in ("key", "open"):
            self._made.append((entry.run, entry.iteration))
        return self._reword(entry, late, step) if (late, step) != (entry.hypothesis, entry.next) else ""

    def _reword(self, entry: Summary, hypothesis: str, step: str) -> str:
        """Writes words into an entry; says why that could not be, and keeps what was typed."""
        try:
            self._logbook.reword(entry, hypothesis, step)
        except JournalError as problem:  # the log, which people read, has them
            return str(problem)
        except LogbookError as problem:
            if hypothesis != entry.hypothesis:
                self.hypothesis = self._owed = hypothesis
            if step != entry.next:
                self.next_step = step
            return f"{problem} ({WAITS})" if self.hypothesis or self.next_step else str(problem)
        return ""
