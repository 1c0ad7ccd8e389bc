"""Which job comes next, and which source has had its answer.

The newest job counts: those before it are never begun. A save of what was just run to its end is not run again. The
session puts jobs in, takes them out, and says which source was taken and how its run ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernbench.engine.jobs import Job
from kernbench.task import snapshot


@dataclass(frozen=True)
class Taken:
    """The source of the last job, and the task it was taken for."""

    source: snapshot.Source
    task_hash: str

    def means_the_same(self, other: Taken) -> bool:
        return (self.source.code, self.task_hash) == (other.source.code, other.task_hash)


class Agenda:
    def __init__(self) -> None:
        self.waiting: Job | None = None
        self._doing: Job | None = None
        self.last: Taken | None = None
        """What the last job was about."""
        self._answered: Taken | None = None
        """What was last run to its end, right, wrong or not even built."""
        self.broken_off = False
        """The run after that did not come to its end."""

    def put(self, job: Job) -> None:
        """The newest job counts; an entry that an unanswered save was to make is made by the job that replaces it."""
        if self.waiting is not None and self.waiting.reason == "save" and job.reason == "key":
            self.waiting = replace(self.waiting, at=job.at, is_asked=True)  # of a source that nobody has taken yet
            return
        unanswered = self.waiting or self._doing
        if unanswered is not None and not self._is_answered():
            job = replace(job, iteration=job.iteration or unanswered.iteration)
        self.waiting = job

    def take(self, paused: bool) -> Job | None:
        """The job that is to be done now; while paused, a save waits until a key asks for it."""
        job = self.waiting
        if job is None or (paused and job.reason == "save" and not job.is_asked):
            return None
        self.waiting, self._doing = None, job
        return job

    def drop_save(self) -> None:
        """It was undone before its turn came; what is there again must have had its answer."""
        if self.waiting is not None and self.waiting.reason == "save" and self._is_answered():
            self.waiting = None

    def _is_answered(self) -> bool:
        """Whether the folder's present source is the one that was last run to its end."""
        return self._answered is not None and self.last is not None and self._answered == self.last

    def inherit_answer(self, now: Taken) -> Taken | None:
        """Where what was last answered means the same, that answer is this one's too; returns whose it was."""
        before = self._answered
        if before is None or not before.means_the_same(now):
            return None
        self._answered = now
        return before

    def end(self, broken_off: bool) -> None:
        """Of the run of the last source."""
        self.broken_off = broken_off
        if not broken_off:
            self._answered = self.last
