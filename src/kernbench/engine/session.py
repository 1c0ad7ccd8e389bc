"""The engine: from a changed source to a finished run, newest save wins.

A session owns one task, its worker and its log. Jobs (a save, a key, a command) replace one another until one is
started; a newer one cancels the run in progress. Every run goes snapshot -> worker -> journal -> listeners, in that
order, so that nothing is shown that is not also on disk. While nothing is to be done it is at its chores. Listeners are
called in the loop's own thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.run import Environment
from harness.shared.task import Task
from harness.shared.task_files import NAMED_BASELINES
from kernbench import crash_report
from kernbench.diagnosis.counters import TraceRow
from kernbench.engine import task_failures
from kernbench.engine.archive import Archive
from kernbench.engine.explainer import Answer, Explainer
from kernbench.engine.idle_work import Chores
from kernbench.engine.jobs import Job, Options
from kernbench.engine.kernel_writes import Dumps
from kernbench.engine.run_notes import Remarks
from kernbench.engine.runner import Ending, Order, Runner
from kernbench.engine.save_queue import Agenda, Taken
from kernbench.engine.workbench_lock import Presence
from kernbench.events import Event, Notice, RunCancelled, Summary, TaskLoaded, WorkerChanged
from kernbench.log.logbook import Logbook
from kernbench.task import case_choice, snapshot, watch
from kernbench.task.baseline import Baseline
from kernbench.worker.process import Unusable
from kernbench.worker.supervisor import Supervisor


class Session:
    def __init__(self, task: Task, state: Path, options: Options | None = None) -> None:
        self.task = task
        self.options = options or Options()
        self.logbook = Logbook(Path(task.folder), state, lambda: self.task)
        self.archive = Archive(lambda: self.task, self.logbook)
        self.environment: Environment | None = None
        self.paused = False
        self.selected: str | None = None
        self.problem: Unusable | None = None
        self._unheard: Exception | None = None
        """Why a listener hears nothing any more."""
        self._baseline = Baseline.parse(self.options.baseline or task.baseline, task)
        self._listeners: list[Callable[[Event], None]] = []
        self.supervisor = Supervisor(
            device=self.options.device or ("cpu" if task.device == "cpu" else "auto"),
            emit=self._from_worker,
            python=self.options.python,
            threads=task.threads if task.device == "cpu" else None,
            deadlines=self.options.deadlines,
            harness=self.options.harness,
            spares=self.options.spares,
        )
        self._runner = Runner(self.supervisor, self.logbook, self._emit)
        self.explainer = Explainer(self.supervisor, self.logbook, self._emit, self.options.harness, self.options.ncu)
        self.remarks = Remarks(self.logbook, lambda: self.running)
        self._presence = Presence(state)
        self._agenda = Agenda()
        self._wake = asyncio.Event()
        self._chores = Chores(
            self.options,
            self.supervisor,
            self._runner,
            self.explainer,
            self._emit,
            self._wake,
            self._profiled_device,
            self._floors_order,
        )
        self._dumps = Dumps(lambda: snapshot.stamps(Path(self.task.folder), self.state))
        self._failed = False
        """The source could not be taken, or its run broke down: any save is worth another try."""
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def baseline(self) -> str:
        return self._baseline.name

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""
        return self._runner.running

    @property
    def waits(self) -> bool:
        """A save that came while paused."""
        return self.paused and self._agenda.waiting is not None

    @property
    def is_alone(self) -> bool:
        """No other workbench is open on the task."""
        return self._presence.is_alone

    @property
    def state(self) -> Path:
        return self.logbook.state

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

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
        self._presence.leave()

    def leave(self) -> None:
        """Ends `closed`; closing itself is for whoever opened the session."""
        self._stop.set()

    async def closed(self) -> None:
        """Until somebody closes the session; raises what kept a listener from hearing."""
        await self._stop.wait()
        if self._unheard is not None:
            raise self._unheard

    async def run_once(self, iteration: bool) -> Ending | None:
        """One run, now, of the source as it is; None when the task cannot be read or nothing matches.

        Raises, when the run is over, what kept a listener from hearing."""
        ending = await self._execute(Job("command", time.monotonic(), iteration))
        if self._unheard is not None:
            raise self._unheard
        return ending

    def rerun(self) -> None:
        """Times the present source again, without a new entry; a save that waits is done now, with its own."""
        self._submit(Job("key", time.monotonic(), iteration=False))

    def set_paused(self, paused: bool) -> None:
        self.paused = paused
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
        self._wake.set()  # the next standby
        return answer

    async def trace(self, case: str, path: Path) -> tuple[TraceRow, ...]:
        """What one call spends, by kernel and operator; raises a UserError. A chrome trace is written to `path`."""
        return await self.explainer.trace(self.task, case, self._baseline, self._device(), path)

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        self._agenda.put(job)
        self._wake.set()
        if not self.paused or job.reason == "key":
            self.supervisor.cancel()

    async def _watch(self) -> None:
        folder, stop, poll = Path(self.task.folder), self._stop, self.options.poll
        async for seen in watch.changes(folder, stop, poll, self._warn, self.state):
            waited = self._agenda.waiting is not None
            if not self._differs():
                self._agenda.drop_save()
            elif seen or not waited:
                self._submit(Job("save", time.monotonic(), iteration=True))
                if self.paused and not waited:
                    self._emit(Notice("paused: the save waits, space goes on"))

    def _look_around(self) -> None:
        if said := self._presence.take():
            self._warn(said)

    def _warn(self, sentence: str) -> None:
        self._emit(Notice(sentence, "warning"))

    async def _serve(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            job = self._agenda.take(self.paused)
            if job is None:
                await self._rest()
                continue
            self._look_around()
            try:
                ending = await self._execute(job)
                if ending is not None and not isinstance(ending, RunCancelled):
                    self._tell_dumps_from_saves()
            except Exception as problem:  # the next save is served, whatever this one met
                self._failed = True
                self._emit(task_failures.broken_down(problem, self.state))

    async def _rest(self) -> None:
        try:
            await self._chores.until_woken()
        except UserError as problem:
            self._emit(Notice(str(problem), "error"))
        except Exception as problem:
            self._emit(Notice(crash_report.sentence(problem), "error"))
            await self._wake.wait()

    def _differs(self) -> bool:
        """Whether the folder holds another source than the one last taken, or may be a task again."""
        try:
            if self._failed:
                return bool(self._dumps.changed())
            if self._dumps.is_no_save(running=self.running is not None or self.supervisor.is_held):
                return False
            now = self.logbook.take_source(self.task)
            return self._agenda.last is None or now.sha != self._agenda.last.source.sha
        except Exception:  # whoever serves the save says what is wrong
            return True

    def _tell_dumps_from_saves(self) -> None:
        said, once_more = self._dumps.end_run(self._holds_another)
        if said:
            said += ", when space goes on" if once_more and self.paused else ""
            self._emit(Notice(said, "information" if once_more else "warning"))
        if once_more and self._agenda.waiting is None:
            self._submit(Job("save", time.monotonic(), iteration=True))

    def _holds_another(self) -> bool:
        last = self._agenda.last
        return last is None or snapshot.sha_of(Path(self.task.folder), self.state) != last.source.sha

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _execute(self, job: Job) -> Ending | None:
        self._dumps.take()
        if not self._reload():
            return None
        source = self.logbook.take_source(self.task)
        self._agenda.last = taken = Taken(source, self.task.hash)
        if job.reason == "save":
            self.remarks.turn_to_save()
            if (before := self._agenda.inherit_answer(taken)) is not None:
                if source.sha != before.source.sha and not job.is_asked:
                    self._emit(Notice("only comments or layout changed: not timed again"))
                if not (self._agenda.broken_off or job.is_asked):
                    return None
                job = replace(job, iteration=False)  # back from an edit that was on its way: the rows have gone dim
        environment = await self._ready()
        if environment is None:
            return None
        await self.explainer.profiler.make_way()
        if self._agenda.waiting is not None and job.reason != "command":
            return None  # superseded while the worker came up or a profile ended
        self.logbook.journal.take_in()  # another process may have made a best since
        try:
            ending = await self._runner.run(self._order(job, source, environment))
        except BaseException:
            self._agenda.end(broken_off=True)
            raise
        self._agenda.end(broken_off=isinstance(ending, RunCancelled))
        if isinstance(ending, Summary):
            self.environment = ending.environment
            if ending.iteration is not None and (problem := self.remarks.settle(ending, job)):
                self._warn(problem)
        return ending

    def _device(self) -> str:
        return self.environment.device if self.environment is not None else self.supervisor.device

    def _profiled_device(self) -> str | None:
        """Where a profile would be taken, as far as that is known."""
        return self.environment.device if self.environment is not None and self.task.device == "cuda" else None

    def _floors_order(self) -> Order | None:
        """The present source once more, where it can be timed."""
        last, environment = self._agenda.last, self.environment
        if last is None or environment is None or case_choice.is_interpreted(self.task, environment):
            return None
        return self._order(Job("key", time.monotonic(), iteration=False), last.source, environment)

    def _order(self, job: Job, source: snapshot.Source, environment: Environment) -> Order:
        known = job.reason in ("open", "key") and self.logbook.number_of(source) is not None
        self._baseline = self._baseline.of(source.folder)
        return Order(
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
            hypothesis=self.remarks.hypothesis,
            next_step=self.remarks.next_step,
            is_own=self._dumps.are_told_apart,
        )

    async def _ready(self) -> Environment | None:
        try:
            environment = await self.supervisor.ready()
        except Unusable as problem:
            self.problem, self._failed = problem, True
            self._emit(WorkerChanged("lost", None, str(problem)))
            self._emit(Notice(str(problem), "error"))
            return None
        self.problem, self.environment = None, self.environment or environment
        return environment

    def _reload(self) -> bool:
        """Reads the task again; a mistake in it is said and nothing is run."""
        try:
            task = taskfile.load(Path(self.task.folder))
        except taskfile.TaskError as problem:
            self._failed = True
            self._emit(task_failures.bad_task(problem, Path(self.task.folder)))
            return False
        if task != self.task or self._failed:
            series = task.hash != self.task.hash
            if self.baseline == self.task.baseline:  # the task's own, not one that was asked for
                self._baseline = Baseline.parse(task.baseline, task)
            self.task, self._failed = task, False
            self._emit(TaskLoaded(task, series))
            if series:
                self._emit(Notice("the task itself changed: a new series starts, without best or stall", "warning"))
        return True

    def _from_worker(self, event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.environment is not None:
            self.environment = event.environment
        self._emit(event)

    def _emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as problem:  # a full disk under the output, say: the run goes on, and is logged
                self._listeners.remove(listener)
                self._unheard = self._unheard or problem
                self.leave()
