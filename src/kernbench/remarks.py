"""What a person says of a run: its hypothesis, and the next step.

Words given beforehand wait here for the run to come, which takes them into its entry. Those that come while it is on,
or after a save that had none, are written into the entry it made. The screen and the commands give them and ask for
them; the session says when something was saved and when an entry was made.
"""

from __future__ import annotations

from collections.abc import Callable

from kernbench.events import Summary
from kernbench.iterations import LogbookError
from kernbench.jobs import Job
from kernbench.journal import JournalError
from kernbench.logbook import Logbook


class Remarks:
    def __init__(self, logbook: Logbook, running: Callable[[], str | None]) -> None:
        self._logbook, self._running = logbook, running
        self.hypothesis = ""
        """Of the run to come."""
        self.next_step = ""
        """Of the entry to come, while there is none yet that could carry it."""
        self._edited: int | None = None
        """Number of the entry that the last save made, as long as nothing was saved since."""

    def set_hypothesis(self, text: str) -> str:
        """For the run to come, or for the entry that a save just made without one."""
        last = self._logbook.last_entry()
        if last is not None and last.iteration == self.hypothesis_for():
            return self._reword(last, text, last.next)
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
        """Next step of the last entry, in place."""
        try:
            number = self._logbook.set_next(text)
        except (LogbookError, JournalError) as problem:
            return str(problem)
        if number is None:
            self.next_step = text
            return "the first entry will carry this next step"
        return f"entry {number} was updated"

    def turn_to_save(self) -> None:
        """Something was saved: words are no longer for the entry before."""
        self._edited = None

    def settle(self, entry: Summary, job: Job) -> None:
        """The entry has taken its words; those given while it ran belong to it too, unless it had some."""
        late, self.hypothesis = self.hypothesis, ""
        self.next_step = ""
        if late != entry.hypothesis and (entry.hypothesis or job.reason in ("key", "open")):
            self.hypothesis = late  # meant for the next one
        elif late != entry.hypothesis:
            self._reword(entry, late, entry.next)
        self._edited = None if job.reason == "open" else entry.iteration

    def _reword(self, entry: Summary, hypothesis: str, next_step: str) -> str:
        try:
            self._logbook.reword(entry, hypothesis, next_step)
        except (LogbookError, JournalError) as problem:
            return str(problem)
        return f"entry {entry.iteration} was updated"
