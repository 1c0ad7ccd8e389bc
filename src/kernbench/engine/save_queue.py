"""Decides what runs next: which changes in the folder are saves, which job wins, which source needs no run.

The newest job wins; those before it never start. A save of a source that was just run to its end is not run again. What
the kernel writes does not count as a save (kernel_writes.py). The session reports what happens (a change, a key, a run
that starts or ends) and carries out each Decision. The queue starts and cancels nothing itself. Only `look` and
`stamps` read the task's folder; the session calls them in a thread, and holds a lock until it has handed back what they
found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from pathlib import Path

from harness.shared.regular_file import read_bytes
from harness.shared.used_files import LARGEST_FILE
from kernbench.engine.conversation.kernel_writes import KernelWrites, listed
from kernbench.engine.jobs import Job
from kernbench.events import Notice
from kernbench.log.logbook import Logbook
from kernbench.task import snapshot, source_files
from kernbench.task.source_files import starts_run


@dataclass(frozen=True)
class QueuedSource:
    """A source as it was read for a job, and the task it was read for."""

    source: snapshot.Source
    task_hash: str

    def has_same_code(self, other: QueuedSource) -> bool:
        """Whether they differ at most in comments and formatting."""
        return (self.source.code, self.task_hash) == (other.source.code, other.task_hash)


@dataclass(frozen=True)
class Decision:
    """What the session should do now."""

    job: Job | None = None
    """Queued by a change, or admitted to run; None to do nothing."""
    notice: Notice | None = None


@dataclass(frozen=True)
class FolderChanges:
    """How the folder differs from the source read last."""

    now: source_files.Stamps
    saved: frozenset[str] | None
    """Files that start a run; None if that cannot be read."""
    data: tuple[str, ...] = ()


class SaveQueue:
    def __init__(self, folder: Path, logbook: Logbook, has_keys: bool = True) -> None:
        self._folder, self._logbook, self._has_keys = folder, logbook, has_keys
        self._seen: source_files.Stamps = {}
        """Stamps of the source's files when last read; of files that needed no run, when last seen."""
        self._data_waits = False
        """A data file has changed since then, and a notice asks for a key."""
        self.paused = False
        """Saves wait until this ends or a key asks for them."""
        self.failed = False
        """The source could not be read, or its run broke down: any save is tried again."""
        self.waiting: Job | None = None
        self._started: Job | None = None
        self._current: QueuedSource | None = None
        """What the last job was about."""
        self._answered: QueuedSource | None = None
        """The source that last ran to its end, whether right, wrong or not built."""
        self._broken_off = False
        """The run after that one did not reach its end."""
        self._by_kernel = KernelWrites(has_keys)

    @property
    def source(self) -> snapshot.Source | None:
        """The source of the last job."""
        return self._current.source if self._current is not None else None

    # -- which job comes next ---------------------------------------------------------------------------------------

    def add(self, job: Job) -> None:
        """Queues a job in place of the pending one. It writes the entry that an unanswered save would have written."""
        if self.waiting is not None and self.waiting.reason == "save" and job.reason == "key":
            self.waiting = replace(self.waiting, at=job.at, is_asked=True)  # its source has not been read yet
            return
        if self._data_waits and job.reason == "key":
            job = replace(job, reason="save", iteration=True, is_asked=True)
        unanswered = self.waiting or self._started
        if unanswered is not None and not self._is_answered():
            job = replace(job, iteration=job.iteration or unanswered.iteration)
        self.waiting = job

    def next(self) -> Job | None:
        """Returns the job to start now; while paused, a save waits until a key asks for it."""
        job = self.waiting
        if job is None or (self.paused and job.reason == "save" and not job.is_asked):
            return None
        self.waiting, self._started = None, job
        return job

    def _is_answered(self) -> bool:
        """Whether the last source read is the one that last ran to its end."""
        return self._answered is not None and self._answered == self._current

    # -- changes in the folder --------------------------------------------------------------------------------------

    def folder_changed(self, found: FolderChanges, seen: bool, running: bool) -> Decision:
        """Queues a save, or drops one that was undone before its turn. A changed data file only makes a notice, and
        not even that while a kernel runs, which may have written it.

        `seen`: the watch reported a change, not only a look at the files' times, which finds the same save again.
        """
        had_waiting, data = self.waiting is not None, found.data
        code = found.saved - self._by_kernel.names if found.saved is not None else None
        if code is not None and not code:
            self._take_as_seen((found.now.keys() | self._seen.keys()) - self._by_kernel.names, found.now)
            self._drop_undone_save()
            return Decision() if running or had_waiting or not data else Decision(notice=self._data_changed(data))
        if had_waiting and not seen:
            return Decision()
        if code is not None and not had_waiting and self._by_kernel.keep_changing(code, running):
            self._take_as_seen(code, found.now)
            return Decision(notice=self._by_kernel.ignored(code))
        notice = Notice("paused: press space to run this save") if self.paused and not had_waiting else None
        self.add(Job("save", time.monotonic(), iteration=True))
        return Decision(self.waiting, notice)

    def look(self) -> FolderChanges:
        """Reads the folder, in a thread: which files that start a run were saved, and which data files have changed.

        A save counts if the text differs from the source read last. Any save counts if that source failed or a changed
        data file waits for a run.
        """
        try:
            now = self.stamps()
            touched = {name for name in now.keys() | self._seen.keys() if now.get(name) != self._seen.get(name)}
            touched -= self._by_kernel.names
            code = {name for name in touched if source_files.starts_run(name)}
            any_save = self.failed or self._data_waits
            saved = frozenset(name for name in code if any_save or self._differs(name, name in now))
            if saved:
                return FolderChanges(now, saved)
            data = sorted(name for name in touched - code if self._differs(name, name in now))
        except Exception:  # the job that reads the folder reports what is wrong
            return FolderChanges({}, None)
        return FolderChanges(now, frozenset(), tuple(data))

    def _differs(self, name: str, exists: bool) -> bool:
        """Whether a file is not what it was in the source read last."""
        if self.source is None or not self.source.folder.is_dir():  # removed, perhaps together with the task
            return True
        kept = self.source.folder / name
        if not (exists and kept.is_file()):
            return exists or kept.is_file()
        return kept.read_bytes() != read_bytes(self._folder / name, LARGEST_FILE)

    def _data_changed(self, names: Iterable[str]) -> Notice:
        self._data_waits = True
        what_to_do = "press r to run" if self._has_keys else "save the solution to start a run"
        return Notice(f"{listed(names)} changed: {what_to_do}")

    def _drop_undone_save(self) -> None:
        """The code is as it was when last read; the save still counts if that source was never answered, or if it is
        to run a changed data file."""
        is_undone = self._is_answered() and not self._data_waits
        if self.waiting is not None and self.waiting.reason == "save" and is_undone:
            self.waiting = None

    def stamps(self) -> source_files.Stamps:
        """The times of the source's files now."""
        task = self._logbook.task
        return source_files.stamps(self._folder, self._logbook.state, task.ignore if task is not None else ())

    def kernel_wrote(self, names: Iterable[str], unseen: bool) -> None:
        """The kernel of the run in progress is about to change these files; `unseen`: it has started a process."""
        self._by_kernel.add(names, unseen)

    def kernel_stopped(self, now: source_files.Stamps) -> Notice | None:
        """A run or a profile has ended: data files that changed meanwhile, and what the kernel wrote, need no run."""
        written = self._by_kernel.stop()
        changed = frozenset(name for name in written if now.get(name) != self._seen.get(name))
        self._take_as_seen(changed | {name for name in now.keys() | self._seen.keys() if not starts_run(name)}, now)
        return self._by_kernel.reported(frozenset(filter(starts_run, changed)))

    def _take_as_seen(self, names: Set[str], now: source_files.Stamps) -> None:
        kept = {name: stamp for name, stamp in self._seen.items() if name not in names}
        self._seen = kept | {name: now[name] for name in names if name in now}

    # -- one run ----------------------------------------------------------------------------------------------------

    def before_reading(self, now: source_files.Stamps) -> None:
        """To be called before a job reads the folder: what is saved after these times counts as a change."""
        self._seen, self._data_waits = now, False

    def admit(self, job: Job, source: snapshot.Source, task_hash: str) -> Decision:
        """The job as it is to run, given the source it found; None if that source already has its answer."""
        self._current = current = QueuedSource(source, task_hash)
        answered = self._answered
        if job.reason != "save" or answered is None or not answered.has_same_code(current):
            return Decision(job)
        self._answered = current
        is_edited = source.sha != answered.source.sha and not job.is_asked
        notice = Notice("only comments, formatting or unused files changed; not re-timed") if is_edited else None
        if not (self._broken_off or job.is_asked):
            return Decision(None, notice)
        # The run of another source was broken off, so the rows are dimmed: time this one again, without an entry.
        return Decision(replace(job, iteration=False), notice)

    def run_started(self) -> None:
        """The source admitted last is running; until `run_finished` its run counts as broken off."""
        self._broken_off = True
        self._by_kernel.start(self._seen)

    def run_finished(self) -> None:
        """The run reached its end, so its source is answered."""
        self._broken_off, self._answered = False, self._current
