"""The engine: from a changed source to a finished run, newest save wins.

A session owns one task, its worker and its log. Jobs (a save, a key, a command) replace one another until one is
started; a newer one cancels the run in progress. Every run goes snapshot -> worker -> journal -> listeners, in that
order, so that nothing is shown that is not also on disk. While nothing is to be done the spare worker and the A/A
floors are prepared. Listeners are called in the loop's own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness import taskfile
from harness.records import CaseResult, Environment, Task, UserError
from kernbench import compare, plan, snapshot, watch
from kernbench.archive import Archive
from kernbench.baselines import Baseline
from kernbench.briefs import About
from kernbench.child import Unusable
from kernbench.events import BuildFailed, Event, Notice, RunCancelled, Summary, TaskLoaded, WorkerChanged
from kernbench.iterations import LogbookError
from kernbench.jobs import Job, Options, Taken
from kernbench.journal import Journal, JournalError
from kernbench.logbook import Logbook
from kernbench.presence import Presence
from kernbench.profiling.counters import Profile, TraceRow
from kernbench.profiling.drilldown import Drilldown
from kernbench.profiling.explain import Answer, Explainer
from kernbench.runner import Ending, Order, Runner
from kernbench.supervisor import Supervisor


class Session:
    def __init__(self, task: Task, state: Path, options: Options | None = None) -> None:
        self.task = task
        self.options = options or Options()
        self.logbook = Logbook(Path(task.folder), state)
        self.archive = Archive(lambda: self.task, self.logbook)
        self.environment: Environment | None = None
        self.paused = False
        self.selected: str | None = None
        self.hypothesis = ""
        self.next_step = ""
        self.problem: Unusable | None = None
        self._baseline = Baseline.parse(self.options.baseline or task.baseline, Path(task.folder))
        self._listeners: list[Callable[[Event], None]] = []
        self._supervisor = Supervisor(
            device=self.options.device or ("cpu" if task.device == "cpu" else "auto"),
            emit=self._from_worker,
            python=self.options.python,
            threads=task.threads if task.device == "cpu" else None,
            deadlines=self.options.deadlines,
            harness=self.options.harness,
            spares=self.options.spares,
        )
        self._runner = Runner(self._supervisor, self.logbook, self._emit)
        self._explainer = Explainer(self._supervisor, self.logbook, self._emit, self.options.harness, self.options.ncu)
        self._presence = Presence(state)
        self._pending: Job | None = None
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._last: Taken | None = None
        """What the last job was about."""
        self._answered: Taken | None = None
        """What was last run to its end, right, wrong or not even built."""
        self._broken_off = False
        """The run after that did not come to its end."""
        self._doing: Job | None = None
        self._edited: int | None = None
        """Number of the entry that the last save made, as long as nothing was saved since."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def journal(self) -> Journal:
        return self.logbook.journal

    @property
    def baseline(self) -> str:
        return self._baseline.name

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""
        return self._runner.running

    @property
    def state(self) -> Path:
        return self.logbook.state

    @property
    def pids(self) -> tuple[int, ...]:
        return self._supervisor.pids

    @property
    def supervisor(self) -> Supervisor:
        return self._supervisor

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    # -- what the screen and the commands ask for -------------------------------------------------------------------

    async def start(self) -> None:
        """Serves saves until closed; the present source is run at once."""
        if other := self._presence.take():
            both = "both time every save and enter it in the log; close one of them"
            self._emit(Notice(f"another workbench is open on this task (process {other}): {both}", "warning"))
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._watch())]
        self._submit(Job("open", time.monotonic(), iteration=True))

    async def close(self) -> None:
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._explainer.profiler.close()
        await self._supervisor.close()
        self._presence.leave()

    def leave(self) -> None:
        """Ends `closed`; closing itself is for whoever opened the session."""
        self._stop.set()

    async def closed(self) -> None:
        """Until somebody closes the session."""
        await self._stop.wait()

    async def run_once(self, iteration: bool) -> Ending | None:
        """One run, now, of the source as it is; None when the task cannot be read or nothing matches."""
        return await self._execute(Job("command", time.monotonic(), iteration))

    def rerun(self) -> None:
        """Times the present source again, without a new entry."""
        self._submit(Job("key", time.monotonic(), iteration=False))

    def set_paused(self, paused: bool) -> None:
        self.paused = paused
        self._wake.set()

    def baselines(self) -> tuple[str, ...]:
        own = () if self.task.baseline in taskfile.NAMED_BASELINES else (self.task.baseline,)
        best = self.logbook.best(self.task, self.baseline, self.environment, self.options.condition)
        return (*own, *taskfile.NAMED_BASELINES, *(("best",) if best else ()))

    def set_baseline(self, name: str) -> None:
        self._baseline = Baseline.parse(name, Path(self.task.folder))
        self.rerun()

    def set_hypothesis(self, text: str) -> str:
        """For the run to come, or for the entry that a save just made without one."""
        last = self.logbook.last_entry()
        if last is not None and last.iteration == self.hypothesis_for():
            return self._reword(last, text, last.next)
        self.hypothesis = text
        return "the next run carries this hypothesis" if text else "the next run carries no hypothesis"

    def hypothesis_for(self) -> int | None:
        """Number of the entry that a hypothesis given now belongs to; None when it is for the run to come."""
        last = self.logbook.last_entry()
        missing = last is not None and not last.hypothesis and last.iteration == self._edited and self.running is None
        return last.iteration if last is not None and missing else None

    def next_now(self) -> str:
        """The next step that `set_next` would change."""
        return self.next_step or self.logbook.next_step()

    def set_next(self, text: str) -> str:
        """Next step of the last entry, in place."""
        try:
            number = self.logbook.set_next(text)
        except (LogbookError, JournalError) as problem:
            return str(problem)
        if number is None:
            self.next_step = text
            return "the first entry will carry this next step"
        return f"entry {number} was updated"

    def iterations(self) -> Sequence[Summary]:
        """By number; those that are only written in ITERATIONS.md are an Elsewhere."""
        return self.logbook.iterations()

    def changed_elsewhere(self) -> bool:
        """Whether `iterations` has changed by what another process did; a run of its own says so itself."""
        return not self.running and self.logbook.changed()

    def numbers(self) -> Sequence[int]:
        return self.logbook.iterations().numbers()

    def last_results(self) -> Mapping[str, CaseResult]:
        """Rows of the last finished run that a run now may be held against."""
        last = self.last_summary()
        if last is None:
            return {}
        is_newest = last.run == self.journal.summaries[-1].run
        return self.journal.last_cases if is_newest else self.journal.cases_of(last.run)

    def last_summary(self) -> Summary | None:
        """Of the last finished run with the present task, baseline, device and condition: no other may be compared."""
        found = next((run for run in reversed(self.journal.briefs.all()) if self._is_comparable(run.about)), None)
        last = self.journal.summaries[found.position] if found else None
        if last is None or self.baseline != "best":
            return last
        best = self.logbook.best(self.task, "best", self.environment or last.environment, self.options.condition)
        return last if last.baseline_hash == best else None

    def _is_comparable(self, run: About) -> bool:
        """Until the worker is up the device is not known; then it is taken to be the one of before."""
        here = self.environment
        device, name = (here.device, here.device_name) if here else (run.device, run.series.device_name)
        l2 = self.options.condition if device.startswith("cuda") else ""
        return run.series == compare.Series(self.task.hash, self.baseline, name, l2)

    def iteration_text(self, number: int) -> str:
        return self.logbook.text(number)

    async def profile(self, case: str, against: str | None = None, full: bool = False) -> Answer:
        """What limits a case, by Nsight Compute: a run in progress rests meanwhile. The answer is emitted, too."""
        answer = await self._explainer.explain(self.task, case, against, full, self._baseline, self._device())
        self._wake.set()  # the next standby
        return answer

    async def trace(self, case: str, path: Path) -> tuple[TraceRow, ...]:
        """What one call spends, by kernel and operator; raises a UserError. A chrome trace is written to `path`."""
        return await self._explainer.trace(self.task, case, self._baseline, self._device(), path)

    async def drilldown(self, profile: Profile) -> Drilldown:
        """What a full profile's report says beyond the numbers; empty where there is none."""
        return await self._explainer.profiler.drilldown(profile)

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        """The newest job counts; an entry that an unanswered save was to make is made by the job that replaces it."""
        unanswered = self._pending or self._doing
        if unanswered is not None and unanswered.reason in ("save", "open") and not self._is_answered():
            job = replace(job, iteration=job.iteration or unanswered.iteration)
        self._pending = job
        self._wake.set()
        if not self.paused or job.reason == "key":
            self._supervisor.cancel()

    async def _watch(self) -> None:
        async for _change in watch.changes(Path(self.task.folder), self._stop, self.options.poll):
            if self._differs():
                self._submit(Job("save", time.monotonic(), iteration=True))

    async def _serve(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            job = self._take()
            try:
                if job is not None:
                    self._doing = job
                    await self._execute(job)
                else:
                    await self._idle()
            except UserError as problem:
                self._emit(Notice(str(problem), "error"))
            except OSError as problem:  # no run has begun: what the rows show is of an earlier source
                place = f"{problem.filename or self.logbook.state}: {problem.strerror}"
                self._emit(BuildFailed("", "", f"nothing was run: {place}; save again when that is mended"))

    def _is_answered(self) -> bool:
        """Whether the folder's present source is the one that was last run to its end."""
        return self._answered is not None and self._last is not None and self._answered == self._last

    def _take(self) -> Job | None:
        job = self._pending
        if job is None or (self.paused and job.reason == "save"):
            return None
        self._pending = None
        return job

    async def _idle(self) -> None:
        """Waits for work; prepares what makes the next run quicker and truer meanwhile."""
        waiting = asyncio.create_task(self._wake.wait())
        chores = asyncio.create_task(self._chores())
        try:
            await waiting
            self._supervisor.cancel()
            await chores
        finally:
            for task in (waiting, chores):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(waiting, chores, return_exceptions=True)

    async def _chores(self) -> None:
        """What can be done while nobody waits; when it cannot be done, a save is still served."""
        try:
            await self._prepare()
        except (UserError, OSError) as problem:
            self._emit(Notice(str(problem), "warning"))

    async def _prepare(self) -> None:
        await self._supervisor.prepare_spare()
        while self.options.spares and not self._supervisor.spare_ready:
            if self._wake.is_set() or len(self._supervisor.pids) < 2:
                return
            await asyncio.sleep(0.05)
        await self._supervisor.prepare_builder(self._wake.is_set)
        if self.options.standby and self.environment is not None and self.task.device == "cuda":
            await self._explainer.prepare(self.environment.device, self._wake)
        if self.options.floors and self._last is not None and self.environment is not None:
            await self._measure_floors(self._last.source, self.environment)

    async def _measure_floors(self, source: snapshot.Source, environment: Environment) -> None:
        if plan.is_interpreted(self.task, environment):
            return
        order = self._order(Job("key", time.monotonic(), iteration=False), source, environment)
        for case in self.task.timed:
            if self._wake.is_set():
                return
            if self._runner.wants_floor(order, case.id) and not await self._runner.measure_floor(order, case.id):
                return

    def _differs(self) -> bool:
        """Whether the folder holds another source than the one last taken."""
        try:
            now = snapshot.take(Path(self.task.folder), self.logbook.state)
            return self._last is None or now.sha != self._last.source.sha
        except OSError:
            return True

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _execute(self, job: Job) -> Ending | None:
        if not self._reload():
            return None
        source = snapshot.take(Path(self.task.folder), self.logbook.state)
        self._last = Taken(source, self.task.hash)
        if job.reason == "save":
            self._edited = None
            if self._answered is not None and self._answered.means_the_same(self._last):
                if source.sha != self._answered.source.sha:
                    self._emit(Notice("only comments or layout changed: not timed again"))
                self._answered = self._last
                if not self._broken_off:
                    return None
                job = replace(job, iteration=False)  # back from an edit that was on its way: the rows have gone dim
        environment = await self._ready()
        if environment is None or (self._pending is not None and job.reason != "command"):
            return None  # no worker, or superseded while it came up
        await self._explainer.profiler.make_way()
        self.journal.take_in()  # another process may have made a best since
        order = self._order(job, source, environment)
        ending = await self._runner.run(order)
        self._broken_off = isinstance(ending, RunCancelled)
        if not self._broken_off:
            self._answered = self._last
        if isinstance(ending, Summary):
            self.environment = ending.environment
            if ending.iteration is not None:
                self._settle_words(order, ending)
                self._edited = None if job.reason == "open" else ending.iteration
        return ending

    def _settle_words(self, order: Order, entry: Summary) -> None:
        """The entry has taken its words; those given while it ran belong to it too, unless it had some."""
        late, self.hypothesis = self.hypothesis, ""
        self.next_step = ""
        if late == order.hypothesis:
            return
        if order.hypothesis or order.reason == "key":
            self.hypothesis = late  # meant for the next one
        else:
            self._reword(entry, late, entry.next)

    def _device(self) -> str:
        return self.environment.device if self.environment is not None else self._supervisor.device

    def _order(self, job: Job, source: snapshot.Source, environment: Environment) -> Order:
        known = job.reason in ("open", "key") and self.logbook.number_of(source.sha) is not None
        return Order(
            task=self.task,
            source=source,
            environment=environment,
            baseline=self._baseline,
            reason="key" if job.reason == "open" else job.reason,
            at=job.at,
            iteration=job.iteration and not known,
            case=self.options.case,
            grid=self.options.grid,
            selected=self.selected,
            budget_ms=self.options.budget_ms,
            condition=self.options.condition,
            hypothesis=self.hypothesis,
            next_step=self.next_step,
        )

    async def _ready(self) -> Environment | None:
        try:
            environment = await self._supervisor.ready()
        except Unusable as problem:
            self.problem = problem
            self._emit(WorkerChanged("lost", None, str(problem)))
            self._emit(Notice(str(problem), "error"))
            return None
        self.problem, self.environment = None, self.environment or environment
        return environment

    def _reword(self, last: Summary, hypothesis: str, next_step: str) -> str:
        try:
            self.logbook.reword(last, hypothesis, next_step)
        except (LogbookError, JournalError) as problem:
            return str(problem)
        return f"entry {last.iteration} was updated"

    def _reload(self) -> bool:
        """Reads the task again; a mistake in it is said and nothing is run."""
        try:
            task = taskfile.load(Path(self.task.folder))
        except taskfile.TaskError as problem:
            self._emit(Notice(str(problem), "error"))
            return False
        if task != self.task:
            series = task.hash != self.task.hash
            self.task = task
            self._emit(TaskLoaded(task, series))
            if series:
                self._emit(Notice("the task itself changed: a new series starts, without best or stall", "warning"))
        return True

    def _from_worker(self, event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.environment is not None:
            self.environment = event.environment
        self._emit(event)

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)
