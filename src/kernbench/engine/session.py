"""The engine: from a changed source to a finished run, newest save wins.

A session owns one task, its worker and its log. Jobs (a save, a key, a command) replace one another until one is
started; a newer one cancels the run in progress. Every run goes snapshot -> worker -> journal -> listeners, in that
order, so that nothing is shown that is not also on disk. While nothing is to be done it is at its chores. Listeners are
called in the loop's own thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from harness.shared.used_files import NAMED_BASELINES
from kernbench import crash_report
from kernbench.diagnosis.counters import TraceRow
from kernbench.engine import task_failures
from kernbench.engine.archive import Archive
from kernbench.engine.idle_work import IdleWork, Situation
from kernbench.engine.jobs import Job, Options
from kernbench.engine.listeners import Listener, Listeners
from kernbench.engine.run_notes import RunNotes
from kernbench.engine.runner import Runner, RunOrder, RunOutcome
from kernbench.engine.save_queue import Decision, SaveQueue
from kernbench.engine.workbench_lock import WorkbenchLock
from kernbench.events import Event, Notice, RunCancelled, Summary, TaskLoaded, WorkerChanged
from kernbench.log.logbook import Logbook
from kernbench.ncu.explainer import Answer, Explainer
from kernbench.task import snapshot, source_files, watch
from kernbench.task.baseline import Baseline
from kernbench.worker.process import Unusable
from kernbench.worker.supervisor import Supervisor


class Session:
    def __init__(self, task: Task, state: Path, options: Options | None = None) -> None:
        self.task = task
        self.options = options = options or Options()
        self.selected: str | None = None
        self.problem: Unusable | None = None
        self._baseline = Baseline.parse(options.baseline or task.baseline, task)
        self._stop, self._wake = asyncio.Event(), asyncio.Event()
        self._listeners = Listeners(self._stop)
        self._emit = self._listeners.emit
        self._listeners.add(self._note_environment)  # first: the others may ask for it
        self.logbook = Logbook(Path(task.folder), state, task, self.options.condition)
        self.archive = Archive(task, self.logbook)
        self.supervisor = _supervisor(task, options, self._emit)
        self._runner = Runner(self.supervisor, self.logbook, self._emit)
        self.explainer = Explainer(self.supervisor, self.logbook, self._emit, options.harness, options.ncu)
        self.notes = RunNotes(self.logbook, self._runner)
        self._lock = WorkbenchLock(state)
        self._saves = SaveQueue(Path(task.folder), self.logbook, options.has_keys)
        self._idle_work = IdleWork(options, self.supervisor, self._runner, self.explainer, self._emit, self._wake)
        self._resting = False
        self._large_files: set[str] = set()
        """Those that a notice has named."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def baseline(self) -> str:
        return self._baseline.name

    @property
    def environment(self) -> Environment | None:
        """Where the worker runs, as it last said."""
        return self.logbook.environment

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""
        return self._runner.running

    @property
    def waits(self) -> bool:
        """A save that came while paused."""
        return self.paused and self._saves.waiting is not None

    @property
    def paused(self) -> bool:
        return self._saves.paused

    @property
    def is_idle(self) -> bool:
        """Every save and key so far has been dealt with, or waits because the session is paused."""
        return self._resting and not self._wake.is_set()

    @property
    def is_alone(self) -> bool:
        """No other workbench is open on the task."""
        return self._lock.is_alone

    @property
    def state(self) -> Path:
        return self.logbook.state

    def listen(self, listener: Listener) -> None:
        self._listeners.add(listener)

    # -- what the screen and the commands ask for -------------------------------------------------------------------

    async def start(self) -> None:
        """Serves saves until closed; the present source is run at once."""
        self._look_around()
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._watch())]
        self._submit(Job("open", time.monotonic(), iteration=True))

    async def close(self) -> None:
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.explainer.profiler.close()
        await self.supervisor.close()
        self._lock.leave()

    def leave(self) -> None:
        """Ends `closed`; closing itself is for whoever opened the session."""
        self._stop.set()

    async def closed(self) -> None:
        """Until somebody closes the session; raises what kept a listener from hearing."""
        await self._stop.wait()
        self._listeners.raise_failure()

    async def run_once(self, iteration: bool) -> RunOutcome | None:
        """One run, now, of the source as it is; None when the task cannot be read or nothing matches.

        Raises, when the run is over, what kept a listener from hearing."""
        outcome = await self._execute(Job("command", time.monotonic(), iteration))
        self._listeners.raise_failure()
        return outcome

    def rerun(self) -> None:
        """Times the present source again, without a new entry; a save that waits is done now, with its own."""
        self._submit(Job("key", time.monotonic(), iteration=False))

    def set_paused(self, paused: bool) -> None:
        self._saves.paused = paused
        self._wake.set()

    def baselines(self) -> tuple[str, ...]:
        own = () if self.task.baseline in NAMED_BASELINES else (self.task.baseline,)
        best = self.logbook.best(self.task, self.environment, self.options.condition)
        return (*own, *NAMED_BASELINES, *(("best",) if best else ()))

    def set_baseline(self, name: str) -> None:
        self._baseline = Baseline.parse(name, self.task)
        self.rerun()

    def changed_elsewhere(self) -> bool:
        """Whether the log has changed by what another process did; a run of its own says so itself."""
        self._look_around()
        return not self.running and self.logbook.changed()

    def last_results(self) -> Mapping[str, CaseResult]:
        """Rows of the last finished run that a run now may be held against."""
        return self.logbook.results_of(self.last_summary())

    def last_summary(self) -> Summary | None:
        """Of that run; None where there is none yet."""
        return self.logbook.last_comparable(self.task, self.baseline, self.environment, self.options.condition)

    async def profile(self, case: str, against: str | None = None, full: bool = False) -> Answer:
        """What limits a case, by Nsight Compute: a run in progress rests meanwhile. The answer is emitted, too."""
        answer = await self.explainer.explain(self.task, case, against, full, self._baseline, self._device())
        self._saves.kernel_stopped()
        self._wake.set()  # the next standby
        return answer

    async def trace(self, case: str, path: Path) -> tuple[TraceRow, ...]:
        """What one call spends, by kernel and operator; raises a UserError. A chrome trace is written to `path`."""
        rows = await self.explainer.trace(self.task, case, self._baseline, self._device(), path)
        self._saves.kernel_stopped()
        return rows

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        self._saves.add(job)
        self._carry_out(Decision(job))

    def _carry_out(self, decision: Decision) -> None:
        if decision.job is not None:
            self._wake.set()
            if not self.paused or decision.job.reason == "key":
                self.supervisor.cancel()
        if decision.notice is not None:
            self._emit(decision.notice)

    async def _watch(self) -> None:
        folder, stop, poll = Path(self.task.folder), self._stop, self.options.poll
        async for seen in watch.changes(folder, stop, poll, self._warn, self.state):
            running = self.running is not None or self.supervisor.is_gpu_lent
            self._carry_out(self._saves.folder_changed(seen, running))

    def _look_around(self) -> None:
        if said := self._lock.announce():
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
            self._look_around()
            try:
                await self._execute(job)
            except Exception as problem:  # the next save is served, whatever this one met
                self._saves.failed = True
                self._emit(task_failures.broken_down(problem, self.state))

    async def _rest(self) -> None:
        self._resting = True
        try:
            await self._idle_work.until_woken(
                Situation(self.task, self._saves.source, self.environment, self._baseline)
            )
        except UserError as problem:
            self._emit(Notice(str(problem), "error"))
        except Exception as problem:
            self._emit(Notice(crash_report.sentence(problem), "error"))
            await self._wake.wait()
        finally:
            self._resting = False

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _execute(self, job: Job) -> RunOutcome | None:
        self._saves.before_reading()
        if not self._reload():
            return None
        source = self.logbook.take_source()
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
        if self._saves.waiting is not None and job.reason != "command":
            return None  # superseded while the worker came up or a profile ended
        self.logbook.journal.read_new()  # another process may have made a best since
        self._saves.run_started()
        self._name_large_files()
        outcome = await self._runner.run(self._order(decision.job, source, environment))
        self._saves.kernel_stopped()
        if not isinstance(outcome, RunCancelled):
            self._saves.run_finished()
        if isinstance(outcome, Summary):
            self.logbook.environment = outcome.environment
            if outcome.iteration is not None and (problem := self.notes.attach_to(outcome, job)):
                self._warn(problem)
        return outcome

    def _name_large_files(self) -> None:
        for name in source_files.too_large(self.task, self.state):
            if name not in self._large_files:
                self._large_files.add(name)
                self._warn(f"{name} is over 1 MB, so it is not part of the source: load it by an absolute path")

    def _device(self) -> str:
        return self.environment.device if self.environment is not None else self.supervisor.device

    def _order(self, job: Job, source: snapshot.Source, environment: Environment) -> RunOrder:
        known = job.reason in ("open", "key") and self.logbook.number_of(source) is not None
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
            hypothesis=self.notes.hypothesis,
            next_step=self.notes.next_step,
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

    def _reload(self) -> bool:
        """Reads the task again; a mistake in it is said and nothing is run."""
        try:
            task = taskfile.load(Path(self.task.folder))
        except taskfile.TaskError as problem:
            self._saves.failed = True
            self._emit(task_failures.bad_task(problem, Path(self.task.folder)))
            return False
        if task != self.task or self._saves.failed:
            series = task.hash != self.task.hash
            if self.baseline == self.task.baseline:  # the task's own, not one that was asked for
                self._baseline = Baseline.parse(task.baseline, task)
            self.task = self.logbook.task = self.archive.task = task
            self._saves.failed = False
            self._emit(TaskLoaded(task, series))
            if series:
                self._emit(Notice("the task itself changed: a new series starts, without best or stall", "warning"))
        return True

    def _note_environment(self, event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.environment is not None:
            self.logbook.environment = event.environment


def _supervisor(task: Task, options: Options, emit: Listener) -> Supervisor:
    return Supervisor(
        device=options.device or ("cpu" if task.device == "cpu" else "auto"),
        emit=emit,
        python=options.python,
        threads=task.threads if task.device == "cpu" else None,
        deadlines=options.deadlines,
        harness=options.harness,
        spares=options.spares,
    )
