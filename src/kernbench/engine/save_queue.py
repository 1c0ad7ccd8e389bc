"""Decides what runs next: which changes in the folder are saves, which job wins, which source needs no run.

The newest job wins; those before it never start. A save of a source that was just run to its end is not run again. The
session reports what happens (a change, a key, a run that starts or ends) and carries out each Decision. The queue reads
the task's folder, but starts and cancels nothing itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from kernbench.engine.jobs import Job
from kernbench.engine.kernel_writes import KernelWrites
from kernbench.events import Notice
from kernbench.log.logbook import Logbook
from kernbench.task import snapshot


@dataclass(frozen=True)
class QueuedSource:
    """A source as it was read for a job, and the task it was read for."""

    source: snapshot.Source
    task_hash: str

    def has_same_code(self, other: QueuedSource) -> bool:
        """Whether they differ in comments and layout at most."""
        return (self.source.code, self.task_hash) == (other.source.code, other.task_hash)


@dataclass(frozen=True)
class Decision:
    """What the session is to do now."""

    job: Job | None = None
    """Queued by a change or after a run, or admitted to run; None: nothing."""
    notice: Notice | None = None


class SaveQueue:
    def __init__(self, folder: Path, logbook: Logbook) -> None:
        self._folder, self._logbook = folder, logbook
        self._writes = KernelWrites()
        self.paused = False
        """Saves wait until this ends, or a key asks for them."""
        self.failed = False
        """The source could not be read, or its run broke down: any save is worth another try."""
        self.waiting: Job | None = None
        self._started: Job | None = None
        self._current: QueuedSource | None = None
        """What the last job was about."""
        self._answered: QueuedSource | None = None
        """What last ran to its end, whether right, wrong or not even built."""
        self._broken_off = False
        """The run after that one did not come to its end."""

    @property
    def source(self) -> snapshot.Source | None:
        """The source of the last job."""
        return self._current.source if self._current is not None else None

    # -- which job comes next ---------------------------------------------------------------------------------------

    def add(self, job: Job) -> None:
        """Queues a job in place of the one that waits. It makes the entry that an unanswered save would have made."""
        if self.waiting is not None and self.waiting.reason == "save" and job.reason == "key":
            self.waiting = replace(self.waiting, at=job.at, is_asked=True)  # its source has not been read yet
            return
        unanswered = self.waiting or self._started
        if unanswered is not None and not self._is_answered():
            job = replace(job, iteration=job.iteration or unanswered.iteration)
        self.waiting = job

    def next(self) -> Job | None:
        """Takes the job to start now; while paused, a save waits until a key asks for it."""
        job = self.waiting
        if job is None or (self.paused and job.reason == "save" and not job.is_asked):
            return None
        self.waiting, self._started = None, job
        return job

    def _is_answered(self) -> bool:
        """Whether the last source read is the one that last ran to its end."""
        return self._answered is not None and self._answered == self._current

    # -- changes in the folder --------------------------------------------------------------------------------------

    def folder_changed(self, seen: bool, running: bool) -> Decision:
        """Queues a save, or drops one that was undone before its turn.

        `seen`: the watch reported a change, not only a look at the files' times, which finds the same save again.
        """
        had_waiting = self.waiting is not None
        if not self._holds_save(running):
            self._drop_undone_save()
            return Decision()
        if had_waiting and not seen:
            return Decision()
        notice = Notice("paused: the save waits, space goes on") if self.paused and not had_waiting else None
        return Decision(self._add_save(), notice)

    def _add_save(self) -> Job | None:
        self.add(Job("save", time.monotonic(), iteration=True))
        return self.waiting

    def _drop_undone_save(self) -> None:
        """The folder is as it was when last read; the save still counts if that source was never answered."""
        if self.waiting is not None and self.waiting.reason == "save" and self._is_answered():
            self.waiting = None

    def _holds_save(self, running: bool) -> bool:
        """Whether the folder holds another source than the one last read, or may be a task again."""
        try:
            if self.failed:
                return bool(self._writes.changed(self._stamps()))
            if self._writes.only_kernel_wrote(self._stamps(), running):
                return False
            return self._is_other(self._logbook.take_source().sha)
        except Exception:  # the job that reads the folder reports what is wrong
            return True

    def _is_other(self, sha: str) -> bool:
        return self._current is None or sha != self._current.source.sha

    def _stamps(self) -> snapshot.Stamps:
        return snapshot.stamps(self._folder, self._logbook.state)

    # -- one run ----------------------------------------------------------------------------------------------------

    def before_reading(self) -> None:
        """To be called before a job reads the folder: what is saved from now on counts as a change."""
        self._writes.start_run(self._stamps())

    def admit(self, job: Job, source: snapshot.Source, task_hash: str) -> Decision:
        """The job as it is to run, given the source it found; None where that source has its answer already."""
        self._current = current = QueuedSource(source, task_hash)
        answered = self._answered
        if job.reason != "save" or answered is None or not answered.has_same_code(current):
            return Decision(job)
        self._answered = current
        is_edited = source.sha != answered.source.sha and not job.is_asked
        notice = Notice("only comments, layout or unused files changed: not timed again") if is_edited else None
        if not (self._broken_off or job.is_asked):
            return Decision(None, notice)
        # The run of another source was broken off, so the rows have gone dim: time it again, without an entry.
        return Decision(replace(job, iteration=False), notice)

    def run_started(self) -> None:
        """The source admitted last is run; until `run_finished` that counts as broken off."""
        self._broken_off = True

    def run_finished(self) -> None:
        """The run came to its end, so its source is answered."""
        self._broken_off, self._answered = False, self._current

    def is_persons_save(self) -> bool:
        """Whether the running source is a person's: a run that only finds out who writes a file makes no entry."""
        return self._writes.is_resolved(self._stamps())

    def after_run(self) -> Decision:
        """Handles data files that changed during a run that came to its end; it may have to run once more."""
        sentence, once_more = self._writes.after_run(self._stamps(), self._holds_other_source)
        notice = None
        if sentence:
            sentence += ", when space goes on" if once_more and self.paused else ""
            notice = Notice(sentence, "information" if once_more else "warning")
        return Decision(self._add_save() if once_more and self.waiting is None else None, notice)

    def _holds_other_source(self) -> bool:
        return self._is_other(snapshot.sha_of(self._folder, self._logbook.state))
