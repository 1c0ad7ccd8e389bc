"""The engine: from a changed source to a finished run, newest save wins.

A session owns one task, its worker and its log. Jobs (a save, a key, a command) replace one another until one is
started; a newer one cancels the run in progress. Every run goes snapshot -> worker -> events -> journal -> listeners, in
that order, so that nothing is shown that is not also on disk. While nothing is to be done the spare worker and the A/A
floors are prepared. Listeners are called in the loop's own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from harness import taskfile
from harness.records import CaseResult, Environment, RunRequest, Task, to_dict
from kernbench import compare, iterations, plan, snapshot, watch
from kernbench.attempt import Attempt
from kernbench.baselines import Baseline
from kernbench.child import Unusable
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Event,
    Notice,
    RunCancelled,
    RunFinished,
    RunStarted,
    Summary,
    TaskLoaded,
    WorkerChanged,
)
from kernbench.journal import Journal, JournalError
from kernbench.supervisor import Deadlines, Lost, Supervisor


@dataclass(frozen=True)
class Options:
    device: str | None = None
    python: str | None = None
    baseline: str | None = None
    case: str | None = None
    """Pattern for ids and labels; a run of a part of the cases never makes a best."""
    grid: bool = False
    """All grid cases instead of a draw."""
    poll: bool = False
    budget_ms: float = 100.0
    deadlines: Deadlines = field(default_factory=Deadlines)
    harness: Path | None = None
    """Another measuring half, for the engine's own tests."""
    spares: bool = True
    floors: bool = True


@dataclass(frozen=True)
class Job:
    reason: Literal["save", "key", "command", "open"]
    at: float
    """Monotonic time of the save, key or command."""
    iteration: bool
    """Makes an entry in ITERATIONS.md if it is built and run."""


class Session:
    def __init__(self, task: Task, state: Path, options: Options | None = None) -> None:
        self.task = task
        self.state = state
        self.options = options or Options()
        self.journal = Journal(state)
        self.environment: Environment | None = None
        self.paused = False
        self.running: str | None = None
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
        self._pending: Job | None = None
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._last: snapshot.Source | None = None
        self._last_hash = task.hash
        self._edited: int | None = None
        """Number of the last entry made in this session, as long as nothing was saved since."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def logbook(self) -> Path:
        return Path(self.task.folder) / "ITERATIONS.md"

    @property
    def baseline(self) -> str:
        return self._baseline.name

    @property
    def supervisor(self) -> Supervisor:
        return self._supervisor

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    # -- what the screen and the commands ask for -------------------------------------------------------------------

    async def start(self) -> None:
        """Serves saves until closed; the present source is run at once."""
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._watch())]
        self._submit(Job("open", time.monotonic(), iteration=False))

    async def close(self) -> None:
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._supervisor.close()

    async def run_once(self, iteration: bool) -> Summary | BuildFailed | RunCancelled | None:
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
        return (*own, *taskfile.NAMED_BASELINES, *(("best",) if self._best() else ()))

    def set_baseline(self, name: str) -> None:
        self._baseline = Baseline.parse(name, Path(self.task.folder))
        self.rerun()

    def set_hypothesis(self, text: str) -> str:
        """For the run to come; for the last entry, if it was made here, has none and nothing was saved since."""
        last = self._last_entry()
        if last is not None and not last.hypothesis and last.iteration == self._edited and self.running is None:
            return self._reword(last, text, last.next)
        self.hypothesis = text
        return "the next run carries this hypothesis" if text else "the next run carries no hypothesis"

    def set_next(self, text: str) -> str:
        """Next step of the last entry, in place."""
        last = self._last_entry()
        if last is None:
            self.next_step = text
            return "the first entry will carry this next step"
        return self._reword(last, last.hypothesis, text)

    def iterations(self) -> Sequence[Summary]:
        return self.journal.iterations()

    def last_results(self) -> Mapping[str, CaseResult]:
        return self.journal.last_cases

    def last_summary(self) -> Summary | None:
        return self.journal.summaries[-1] if self.journal.summaries else None

    def iteration_text(self, number: int) -> str:
        return iterations.entry_of(self.logbook, number) or f"{self.logbook.name} has no entry {number}"

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
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
                    await self._execute(job)
                else:
                    await self._idle()
            except JournalError as problem:
                self._emit(Notice(str(problem), "error"))
            except OSError as problem:
                self._emit(Notice(f"{problem.filename or self.state}: {problem.strerror}", "error"))

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
        await self._supervisor.prepare_spare()
        while self.options.spares and not self._supervisor.spare_ready:
            if self._wake.is_set() or len(self._supervisor.pids) < 2:
                return
            await asyncio.sleep(0.05)
        if self.options.floors and self._last is not None:
            await self._measure_floors(self._last)

    async def _measure_floors(self, source: snapshot.Source) -> None:
        environment = self.environment
        if environment is None or plan.is_interpreted(self.task, environment):
            return
        for case in self.task.timed:
            if self._wake.is_set():
                return
            if self._floor_key(case.id) in self.journal.floors or self.journal.last_cases.get(case.id) is None:
                continue
            request = self._request(f"floor-{secrets.token_hex(4)}", source, [case.id], 0, None)
            async with contextlib.aclosing(self._supervisor.talk({"request": "floor", **to_dict(request)})) as conversation:
                async for message in conversation:
                    if isinstance(message, Lost):
                        return
                    if message.get("event") == "floor" and message.get("floor") is not None:
                        self.journal.keep_floor(self._floor_key(str(message["case"])), float(message["floor"]))

    def _differs(self) -> bool:
        """Whether the folder holds another source than the one last taken."""
        try:
            return self._last is None or snapshot.take(Path(self.task.folder), self.state).sha != self._last.sha
        except OSError:
            return True

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _execute(self, job: Job) -> Summary | BuildFailed | RunCancelled | None:
        if not self._reload():
            return None
        source = snapshot.take(Path(self.task.folder), self.state)
        comment_only = self._last is not None and source.meaning == self._last.meaning and self.task.hash == self._last_hash
        fresh = self._last is None or source.sha != self._last.sha
        if job.reason == "save":
            self._edited = None
            if comment_only:
                if fresh:
                    self._emit(Notice("only comments or layout changed: not timed again"))
                self._last = source
                return None
        self._last, self._last_hash = source, self.task.hash
        environment = await self._ready()
        if environment is None:
            return None
        return await self._converse(self._with_entry(job, source), source, environment)

    def _with_entry(self, job: Job, source: snapshot.Source) -> Job:
        """Opening the workbench makes an entry only for a source that no entry knows."""
        if job.reason != "open":
            return job
        known = self.journal.iteration_of(source.sha) is not None
        known = known or iterations.last_source(self.logbook) == source.sha[:8]
        return replace(job, iteration=not known)

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

    async def _converse(
        self, job: Job, source: snapshot.Source, environment: Environment
    ) -> Summary | BuildFailed | RunCancelled | None:
        if self._pending is not None and job.reason != "command":
            return None  # superseded while the worker came up
        seed = random.SystemRandom().randrange(1, 2**31)
        interpreted = plan.is_interpreted(self.task, environment)
        cases, skipped = plan.choose(plan.matching(self.task, self.options.case), seed, self.options.grid, interpreted)
        order = plan.ordered(cases, self.journal.last_cases, self.selected)
        run = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        best = self._best()
        request = self._request(run, source, order, seed, None if best == source.sha else best)
        started = RunStarted(
            run=run,
            source=source.sha,
            reason="key" if job.reason == "open" else job.reason,
            cases=tuple(order),
            at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            baseline=self._baseline.name,
            hypothesis=self.hypothesis,
            best=best,
            seed=seed,
            task_hash=self.task.hash,
        )
        attempt = Attempt(self.task, started, str(source.folder), self.journal.failed_builds)
        self.running = run
        try:
            self.journal.start(started, self.task.name, environment)
            self._emit(started)
            for result in skipped:
                self._record(attempt.take({"event": "case", "result": to_dict(result)}))
            await self._listen_to_worker(attempt, request)
        finally:
            self.running = None
        return self._conclude(job, attempt)

    async def _listen_to_worker(self, attempt: Attempt, request: RunRequest) -> None:
        async with contextlib.aclosing(self._supervisor.talk({"request": "run", **to_dict(request)})) as conversation:
            async for message in conversation:
                if isinstance(message, Lost):
                    self._record(attempt.lose(message))
                else:
                    self._record(attempt.take(message))

    def _record(self, events: Sequence[Event]) -> None:
        """On disk first, then on the screen."""
        for event in events:
            if isinstance(event, CaseLanded):
                self.journal.case(event)
            self._emit(event)

    def _conclude(self, job: Job, attempt: Attempt) -> Summary | BuildFailed | RunCancelled:
        if attempt.held:
            self.journal.hold(self.task.hash)
        if attempt.cancelled is not None:
            self.journal.cancel(attempt.cancelled)
            self._emit(attempt.cancelled)
            return attempt.cancelled
        if attempt.failure is not None:
            self.journal.fail(attempt.failure)
            self._emit(attempt.failure)
            return attempt.failure
        summary = self._enter(job, attempt, self._summarise(job, attempt))
        self.journal.finish(summary, attempt.results.values())
        self.environment = summary.environment
        self._emit(RunFinished(summary))
        return summary

    def _summarise(self, job: Job, attempt: Attempt) -> Summary:
        environment = attempt.environment or self.environment or Environment()
        return compare.summarise(
            self.task,
            attempt.started,
            attempt.results,
            compare.Circumstances(
                environment=environment,
                series=self._series(environment.device_name),
                complete=all(case.id in attempt.results for case in self.task.timed),
                findings=attempt.findings,
                seconds=time.monotonic() - job.at,
                is_iteration=job.iteration,
                repeats=self.journal.iteration_of(attempt.started.source),
                failed_builds=self.journal.failed_builds,
                next=self.next_step if job.iteration else "",
            ),
        )

    def _enter(self, job: Job, attempt: Attempt, summary: Summary) -> Summary:
        """Writes the entry in ITERATIONS.md, if this run makes one."""
        if not job.iteration:
            return summary
        text = iterations.EntryText(self.task, summary, attempt.results)
        try:
            number = iterations.append(self.logbook, text, self.journal.highest())
        except iterations.LogbookError as problem:
            self._emit(Notice(str(problem), "error"))
            return summary
        self.hypothesis = self.next_step = ""
        self._edited = number
        return compare.numbered(summary, number)

    def _request(self, run: str, source: snapshot.Source, cases: Sequence[str], seed: int, best: str | None) -> RunRequest:
        return RunRequest(
            run=run,
            task=self.task,
            source=str(source.folder),
            best=str(self.state / "sources" / best) if best else None,
            baseline=self._baseline.for_worker(self.state, self._best()),
            cases=tuple(cases),
            seed=seed,
            budget_ms=self.options.budget_ms,
            floors={case: floor for case in cases if (floor := self.journal.floors.get(self._floor_key(case))) is not None},
            controls=self.task.hash not in self.journal.controls,
            build=str(self.state / "build"),
        )

    # -- what is known ----------------------------------------------------------------------------------------------

    def _series(self, device_name: str) -> list[Summary]:
        name = self.task.baseline if self._baseline.name == "best" else self._baseline.name
        return compare.series_of(self.journal.summaries, self.task.hash, name, device_name)

    def _best(self) -> str | None:
        """Hash of the series' best source, if its snapshot is on this machine."""
        if self.environment is None:
            return None
        best = compare.best_of(self._series(self.environment.device_name))
        return best.source if best and (self.state / "sources" / best.source).is_dir() else None

    def _floor_key(self, case: str) -> str:
        environment = self.environment or Environment()
        parts = (environment.device_name, environment.torch, environment.triton, self.task.hash, self._baseline.name, case)
        return "|".join(str(part) for part in parts)

    def _last_entry(self) -> Summary | None:
        return next(reversed(self.journal.iterations()), None)

    def _reword(self, last: Summary, hypothesis: str, next_step: str) -> str:
        try:
            iterations.reword(self.logbook, last, replace(last, hypothesis=hypothesis, next=next_step))
            self.journal.words(last.iteration or 0, hypothesis, next_step)
        except (iterations.LogbookError, JournalError) as problem:
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

