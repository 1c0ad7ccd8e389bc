"""The engine: from a changed source to a finished run; the newest save wins.

A session owns one task, its worker and its log. A job (a save, a key, a command) replaces the pending one and cancels
the run in progress. Every run goes snapshot -> worker -> journal -> listeners, in that order, so that whatever is shown
is already on disk. Without a job the session does its idle work. Listeners are called in the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from harness.shared.taskfile.values import TaskError
from harness.shared.used_files import NAMED_BASELINES
from kernbench import crash_report
from kernbench.diagnosis.counters import TraceRow
from kernbench.engine import revision_baseline
from kernbench.engine.archive import Archive
from kernbench.engine.idle_work import IdleWork, Situation
from kernbench.engine.jobs import Job, Options, bad_task, broken_down, supervisor_for
from kernbench.engine.listeners import Listener, Listeners
from kernbench.engine.model_steps import ModelSteps
from kernbench.engine.run_notes import RunNotes
from kernbench.engine.runner import Runner, RunOrder, RunOutcome, RunPlan
from kernbench.engine.save_queue import Decision, SaveQueue
from kernbench.engine.workbench_lock import WorkbenchLock
from kernbench.events import Event, Notice, RunCancelled, Summary, TaskLoaded, WorkerChanged
from kernbench.log.logbook import Logbook
from kernbench.log.waiting_entries import WaitingEntries
from kernbench.machine import freed_memory
from kernbench.ncu.explainer import Answer, Explainer
from kernbench.task import snapshot, source_files, watch
from kernbench.worker.process import Unusable

PRUNE_EVERY, TRIM_EVERY = 3600.0, 60.0


class Session:
    def __init__(self, task: Task, state: Path, options: Options | None = None) -> None:
        self.task = task
        self.options = options = options or Options()
        self.selected: str | None = None
        self.problem: Unusable | None = None
        self._baseline = revision_baseline.parse(options.baseline or task.baseline, task, state)
        self._revision = (self.baseline,) if self._baseline.tree else ()
        self._stop, self._wake = asyncio.Event(), asyncio.Event()
        self._listeners = Listeners(self._stop)
        self._emit = self._listeners.emit
        self._listeners.add(self._note_environment)  # first: the other listeners may need it
        self.logbook = Logbook(Path(task.folder), state, task, self.options.condition)
        self.logbook.keep_entries()
        self.archive = Archive(task, self.logbook)
        self.supervisor = supervisor_for(task, options, self._emit)
        self.explainer = Explainer(self.supervisor, self.logbook, self._emit, options.harness, options.ncu)
        self._lock = WorkbenchLock(state)
        self._saves = SaveQueue(Path(task.folder), self.logbook, options.has_keys)
        self._reads_folder = asyncio.Lock()
        """Held from a look at the folder until the queue knows what was found."""
        self._runner = Runner(self.supervisor, self.logbook, self._emit, self._saves.kernel_wrote)
        self._runner.confirmations.after = self._kernel_stopped
        self.notes = RunNotes(self.logbook, self._runner)
        self.models = ModelSteps(options, self.logbook, self._emit, self._wake)
        self.idle_work = IdleWork(options, self.supervisor, self._runner, self.explainer, self._emit, self.models)
        self._resting = False
        self._waiting_entries = WaitingEntries(self.logbook, self._emit)
        self._prune_at = self._trim_at = 0.0
        self._pruning: asyncio.Task[None] | None = None
        self._warned: set[str] = set()
        """Of a file or a baseline; once is enough."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def baseline(self) -> str:
        return self._baseline.name

    @property
    def environment(self) -> Environment | None:
        """The worker's environment, as it last reported it."""
        return self.logbook.environment

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""
        return self._runner.running

    @property
    def waits(self) -> bool:
        """Whether a save is pending because the session is paused."""
        return self.paused and self._saves.waiting is not None

    @property
    def paused(self) -> bool:
        return self._saves.paused

    @property
    def is_idle(self) -> bool:
        """Every save and key so far was handled, or is pending because the session is paused."""
        return self._resting and not self._wake.is_set()

    @property
    def is_alone(self) -> bool:
        """No other workbench is open on the task."""
        return self._lock.is_alone

    @property
    def unwritten(self) -> str:
        return self.logbook.journal.unwritten

    @property
    def state(self) -> Path:
        return self.logbook.state

    def listen(self, listener: Listener) -> None:
        self._listeners.add(listener)

    # -- what the screen and the commands ask for -------------------------------------------------------------------

    async def start(self) -> None:
        """Serves saves until closed; runs the current source at once."""
        await self._look_around()
        tasks = (self._serve, self._watch, self._waiting_entries.keep_writing)
        self._tasks = [asyncio.create_task(task()) for task in tasks]
        self._submit(Job("open", time.monotonic(), iteration=True))

    async def close(self) -> None:
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.explainer.profiler.close()
        if self.options.worker is None:
            await self.supervisor.close()
        if not await self.logbook.in_thread.close():
            self._emit(Notice(f"{self.state} is not responding: the latest log entries may not be on disk", "error"))
        self._lock.leave()

    def leave(self) -> None:
        """Ends `closed`; the caller that opened the session still has to close it."""
        self._stop.set()

    async def closed(self) -> None:
        """Waits until the session is closed or left; raises the error of a listener."""
        await self._stop.wait()
        self._listeners.raise_failure()

    async def run_once(self, iteration: bool) -> RunOutcome | None:
        """Runs the source as it is, now; None if the task cannot be read, the worker cannot start, or `break_off` of
        the idle work came first. Raises the error of a listener once the run is over."""
        self._wake.clear()
        outcome = await self._execute(Job("command", time.monotonic(), iteration))
        with contextlib.suppress(UserError):  # an entry that cannot be written yet waits on
            await self._waiting_entries.write()
        self._listeners.raise_failure()
        return outcome

    async def confirm(self) -> None:
        """Confirms the run before, if it would be best; for a command that ends with its run."""
        if self.options.confirm:
            await self.idle_work.confirm_now()
        self._listeners.raise_failure()

    def rerun(self) -> None:
        """Times the current source again, without a new entry; a pending save runs now, with its entry."""
        self._submit(Job("key", time.monotonic(), iteration=False))

    def set_paused(self, paused: bool) -> None:
        self._saves.paused = paused
        self._wake.set()

    def baselines(self) -> tuple[str, ...]:
        own = () if self.task.baseline in NAMED_BASELINES else (self.task.baseline,)
        best = self.logbook.best(self.task, self.environment, self.options.condition)
        return (*own, *NAMED_BASELINES, *(("best",) if best else ()), *self._revision)

    def set_baseline(self, name: str) -> None:
        self._baseline = revision_baseline.parse(name, self.task, self.state)
        self.rerun()

    async def changed_elsewhere(self) -> bool:
        """Whether another process changed the log; this session's runs emit events instead."""
        await self._look_around()
        changed = not self.running and await self.logbook.in_thread(self.logbook.changed)
        self._warn_once(self.logbook.journal.problems)
        return changed

    def last_results(self) -> Mapping[str, CaseResult]:
        """Rows of the last finished run that a run now can be compared with."""
        return self.logbook.results_of(self.last_summary())

    def last_summary(self) -> Summary | None:
        """That run's summary; None if there is none yet."""
        return self.logbook.last_comparable(self.task, self.baseline, self.environment, self.options.condition)

    async def profile(self, case: str, against: str | None = None, full: bool = False) -> Answer:
        """Asks Nsight Compute what limits a case; a run in progress pauses meanwhile. Emits the answer, too."""
        answer = await self.explainer.explain(self.task, case, against, full, self._baseline, self._device())
        await self._kernel_stopped()
        self._wake.set()  # idle work starts the next standby
        return answer

    async def trace(self, case: str, path: Path) -> tuple[TraceRow, ...]:
        """One call's time by kernel and operator; writes a Chrome trace to `path`. Raises UserError."""
        rows = await self.explainer.trace(self.task, case, self._baseline, self._device(), path)
        await self._kernel_stopped()
        return rows

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        self._saves.add(job)
        self._carry_out(Decision(job))

    def _carry_out(self, decision: Decision) -> None:
        if decision.job is not None:
            self._wake.set()
            comes_first = self._runner.confirmations.comes_first
            if not comes_first and (not self.paused or decision.job.reason == "key"):
                self.supervisor.cancel()
        if decision.notice is not None:
            self._emit(decision.notice)

    async def _watch(self) -> None:
        folder, stop, poll = Path(self.task.folder), self._stop, self.options.poll
        async for seen in watch.changes(folder, stop, poll, self._warn, self.state):
            async with self._reads_folder:
                found = await self.logbook.in_thread(self._saves.look)
                running = bool(self.running or self._runner.confirmations.running) or self.supervisor.is_gpu_lent
                self._carry_out(self._saves.folder_changed(found, seen, running))

    async def _look_around(self) -> None:
        if said := await self.logbook.in_thread(self._lock.announce):
            self._warn(said)

    def _warn(self, sentence: str) -> None:
        self._emit(Notice(sentence, "warning"))

    async def _serve(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            job = self._saves.next()
            if job is None:
                await self._rest()
                continue
            try:
                await self._look_around()
                await self.idle_work.confirm_overdue(job)
                await self._execute(job)
            except Exception as problem:  # the next save is served, however this one failed
                self._saves.failed = True
                self._emit(broken_down(problem, self.state))

    async def _rest(self) -> None:
        self._resting = True
        self._tidy()
        try:
            await self.idle_work.until_woken(Situation(self.task, self._saves.source, self.environment, self._baseline))
        except UserError as problem:
            self._emit(Notice(str(problem), "error"))
        except Exception as problem:
            self._emit(Notice(crash_report.sentence(problem), "error"))
            await self._wake.wait()
        finally:
            self._resting = False

    def _tidy(self) -> None:
        """While nothing is timed: gives back memory once a minute, prunes once an hour."""
        if time.monotonic() >= self._trim_at:
            self._trim_at = time.monotonic() + TRIM_EVERY
            self.logbook.in_thread(freed_memory.give_back)
        if time.monotonic() >= self._prune_at and "journal" in vars(self.logbook):
            self._prune_at = time.monotonic() + PRUNE_EVERY
            self._pruning = asyncio.create_task(asyncio.to_thread(self.archive.prune))

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _execute(self, job: Job) -> RunOutcome | None:
        async with self._reads_folder:
            source = await self._read_source()
            if source is None:
                return None
            if job.reason == "save":
                self.notes.on_save()
            decision = self._saves.admit(job, source, self.task.hash)
        if decision.notice is not None:
            self._emit(decision.notice)
        if decision.job is None:
            return None
        environment = await self._ready()
        if environment is None:
            return None
        await self.explainer.profiler.make_way()
        plan, warnings = await self.logbook.in_thread(self._prepare, decision.job, source, environment)
        if self._wake.is_set() if job.reason == "command" else self._saves.waiting is not None:
            return None  # broken off, or superseded, while the worker started or a profile ended
        self._saves.run_started()
        self._warn_once([*self.logbook.journal.problems, *warnings])
        outcome = await self._runner.run(plan)
        if not self.options.confirm:  # then another process may
            self.logbook.journal.awaited.clear()
        await self._kernel_stopped()
        if not isinstance(outcome, RunCancelled):
            self._saves.run_finished()
        if isinstance(outcome, Summary):
            self.logbook.environment = outcome.environment
            self._waiting_entries.look()
            makes_entry = outcome.iteration is not None or outcome.run in self.logbook.journal.waiting
            words = self.notes.words_for(outcome, job) if makes_entry else None
            if words and (problem := await self.logbook.in_thread(self.notes.reword, outcome, *words)):
                self._warn(problem)
        return outcome

    async def _kernel_stopped(self) -> None:
        with contextlib.suppress(OSError):
            async with self._reads_folder:
                now = await self.logbook.in_thread(self._saves.stamps)
                if notice := self._saves.kernel_stopped(now):
                    self._emit(notice)

    def _warn_once(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._warn(sentence)

    def _device(self) -> str:
        return self.environment.device if self.environment is not None else self.supervisor.device

    def _prepare(self, job: Job, source: snapshot.Source, environment: Environment) -> tuple[RunPlan, list[str]]:
        """Reads everything that the run needs to know, and what there is to warn about; in a thread."""
        self.logbook.journal.read_new()  # another process may have logged a new best since
        self.logbook.refresh()
        plan = self._runner.plan(self._order(job, source, environment))
        damage = [] if plan.best else self.logbook.damage(self.task, environment, self.options.condition)
        return plan, [*source_files.too_large(self.task, self.state), *self._baseline.notes, *damage]

    def _order(self, job: Job, source: snapshot.Source, environment: Environment) -> RunOrder:
        known = job.reason in ("open", "key") and self.logbook.has_entry(source)
        self._baseline = self._baseline.of(source.folder)
        return RunOrder(
            task=self.task,
            source=source,
            environment=environment,
            baseline=self._baseline,
            reason=job.reason,
            at=job.at,
            iteration=job.iteration and not known,
            case=self.options.case,
            grid=self.options.grid,
            selected=self.selected,
            budget_ms=self.options.budget_ms,
            condition=self.options.condition,
            quick=self.options.quick,
            hypothesis=self.notes.hypothesis,
            next_step=self.notes.next_step,
            tried=self.options.tried,
        )

    async def _ready(self) -> Environment | None:
        try:
            environment = await self.supervisor.ready()
        except Unusable as problem:
            self.problem, self._saves.failed = problem, True
            self._emit(WorkerChanged("lost", None, str(problem)))
            self._emit(Notice(str(problem), "error"))
            return None
        self.problem, self.logbook.environment = None, self.environment or environment
        return environment

    async def _read_source(self) -> snapshot.Source | None:
        """Reads the task and takes a snapshot of the source; reports a mistake in the task and returns None."""
        in_thread = self.logbook.in_thread
        self._saves.before_reading(await in_thread(self._saves.stamps))
        return await in_thread(self.logbook.take_source, self.options.source) if await self._reload() else None

    async def _reload(self) -> bool:
        in_thread = self.logbook.in_thread
        try:
            task = await in_thread(taskfile.load, Path(self.task.folder))
        except TaskError as problem:
            self._saves.failed = True
            self._emit(await in_thread(bad_task, problem, Path(self.task.folder)))
            return False
        if task != self.task or self._saves.failed:
            series = task.hash != self.task.hash
            if self.baseline == self.task.baseline:  # the task's own, not one the user chose
                self._baseline = await in_thread(revision_baseline.parse, task.baseline, task, self.state)
            self.task = self.logbook.task = self.archive.task = task
            self._saves.failed = False
            self._emit(TaskLoaded(task, series))
            if series:
                self._emit(Notice("task changed: starting a new series (no best yet)", "warning"))
        return True

    def _note_environment(self, event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.environment is not None:
            self.logbook.environment = event.environment
