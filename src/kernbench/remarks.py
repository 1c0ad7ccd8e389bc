"""What a person says of a run: its hypothesis, and the next step.

Words given beforehand wait here for the run to come, which takes them into its entry. Those that come while it is on,
or after a save that had none, are written into the entry it made; where its file cannot be changed this moment, they
wait like the others. The screen and the commands give them and ask for them; the session says when something was saved
and when an entry was made.
"""

from __future__ import annotations

from collections.abc import Callable

from kernbench.events import Summary
from kernbench.iterations import LogbookError
from kernbench.jobs import Job
from kernbench.journal import JournalError
from kernbench.logbook import Logbook

WAITS = "what was typed waits for the next run"


class Remarks:
    def __init__(self, logbook: Logbook, running: Callable[[], str | None]) -> None:
        self._logbook, self._running = logbook, running
        self.hypothesis = ""
        """Of the run to come."""
        self.next_step = ""
        """Of the entry to come, while there is none yet that could carry it, or the last one could not be changed."""
        self._edited: int | None = None
        """Number of the entry that the last save made, as long as nothing was saved since."""

    def set_hypothesis(self, text: str) -> str:
        """For the run to come, or for the entry that a save just made without one."""
        last = self._logbook.last_entry()
        if last is not None and last.iteration == self.hypothesis_for():
            self.hypothesis = ""  # what waited since it could not be written
            return self._reword(last, text, last.next) or f"entry {last.iteration} was updated"
        self.hypothesis = text
        return "the next run carries this hypothesis" if text else "the next run carries no hypothesis"

    def hypothesis_for(self) -> int | None:
        """Number of the entry that a hypothesis given now belongs to; None when it is for the run to come."""
        last = self._logbook.last_entry()
        if last is None or last.hypothesis or last.iteration != self._edited or self._running() is not None:
            return None
        return last.iteration

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

    def turn_to_save(self) -> None:
        """Something was saved: words are no longer for the entry before."""
        self._edited = None

    def settle(self, entry: Summary, job: Job) -> str:
        """The entry has taken its words; those given while it ran belong to it too, unless it had some.

        Says why they could not be written into it, where that is so: then they wait for the next run.
        """
        late, step = self.hypothesis, self.next_step
        self.hypothesis = self.next_step = ""
        if late != entry.hypothesis and (entry.hypothesis or job.reason in ("key", "open")):
            self.hypothesis, late = late, entry.hypothesis  # meant for the next one
        self._edited = None if job.reason == "open" else entry.iteration
        return self._reword(entry, late, step) if (late, step) != (entry.hypothesis, entry.next) else ""

    def _reword(self, entry: Summary, hypothesis: str, step: str) -> str:
        """Writes words into an entry; says why that could not be, and keeps what was typed."""
        try:
            self._logbook.reword(entry, hypothesis, step)
        except JournalError as problem:  # the log, which people read, has them
            return str(problem)
        except LogbookError as problem:
            if hypothesis != entry.hypothesis:
                self.hypothesis = hypothesis
            if step != entry.next:
                self.next_step = step
            return f"{problem} ({WAITS})" if self.hypothesis or self.next_step else str(problem)
        return ""
