"""One run, from the order to its line in the log.

A RunOrder says what to run. The runner chooses the cases, talks to the worker through the supervisor and records every
event on disk before a listener sees it. A run ends in a Summary, a BuildFailed or a RunCancelled. What reads or writes
files runs in the logbook's thread.
"""

from __future__ import annotations

import contextlib
import functools
import random
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from harness.shared import format as fmt
from harness.shared import used_files
from harness.shared.lines import to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment, RunRequest
from harness.shared.task import Task
from kernbench.engine.conversation.confirmation import Confirmations
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.engine.conversation.second_try import SecondTry
from kernbench.events import BuildFailed, CaseLanded, Event, Notice, RunCancelled, RunFinished, RunStarted, Summary
from kernbench.log.entries.log_lock import PATIENCE
from kernbench.log.logbook import Logbook, floor_key
from kernbench.log.runs import comparison
from kernbench.log.runs.series import best_of, may_be_best
from kernbench.machine.git import author
from kernbench.task import case_choice
from kernbench.task.baseline import Baseline
from kernbench.task.snapshot import Source
from kernbench.version import __version__
from kernbench.worker.process import WorkerLost
from kernbench.worker.supervisor import Supervisor

SHORT_PATIENCE = 0.2
"""Seconds that a run's end waits for the lock of ITERATIONS.md; after that, the entry waits alone."""
RunOutcome = Summary | BuildFailed | RunCancelled


@dataclass(frozen=True)
class RunOrder:
    """What to run, on which device, and the words for its entry."""

    task: Task
    source: Source
    environment: Environment
    baseline: Baseline
    reason: Literal["save", "key", "command", "open"]
    at: float
    """Monotonic time of the save, key or command."""
    iteration: bool
    """Writes an entry to ITERATIONS.md if it builds and runs."""
    case: str | None = None
    grid: bool = False
    selected: str | None = None
    budget_ms: float = 100.0
    condition: Literal["cold", "warm", "dirty"] = "cold"
    quick: bool = False
    hypothesis: str = ""
    hypothesis_at: str = ""
    """When it was written, in UTC; if unknown, the start of the run counts."""
    next_step: str = ""
    tried: str = ""


@dataclass(frozen=True)
class RunPlan:
    """An order with all that was read for it: what the worker is asked, and what is known before it answers."""

    order: RunOrder
    request: RunRequest
    best: str | None
    skipped: Sequence[CaseResult]
    uncompiled: Sequence[str]
    """CUDA files that a machine without a GPU leaves out."""


class Runner:
    def __init__(
        self,
        supervisor: Supervisor,
        logbook: Logbook,
        emit: Callable[[Event], None],
        wrote: Callable[[Sequence[str], bool], None] = lambda files, unseen: None,
    ) -> None:
        """`wrote` is called with the files that the kernel is about to write, and whether it has started a process."""
        self._supervisor, self._logbook, self._emit, self._wrote = supervisor, logbook, emit, wrote
        self.running: str | None = None
        self.second_try = SecondTry(supervisor, logbook, emit)
        self.confirmations = Confirmations(supervisor, logbook, emit, wrote)
        self._told_of_cuda = False

    def plan(self, order: RunOrder) -> RunPlan:
        """Chooses the cases and reads the log; in a thread."""
        seed = random.SystemRandom().randrange(1, 2**31)
        interpreted = case_choice.is_interpreted(order.task, order.environment)
        cases, skipped = case_choice.choose(case_choice.matching(order.task, order.case), seed, order.grid, interpreted)
        ids = case_choice.ordered(cases, self._logbook.journal.last_cases, order.selected)
        best = self._best(order)
        request = self._request(
            order, f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}", ids, seed, best
        )
        uncompiled = used_files.for_a_gpu(order.source.folder) if interpreted else ()
        return RunPlan(order, request, best, skipped, uncompiled)

    async def run(self, plan: RunPlan) -> RunOutcome:
        order = plan.order
        started = _started(order, plan.request, plan.best)
        progress = RunProgress(order.task, started, plan.request.source, self._logbook.journal.failed_builds)
        self.running = started.run
        self.second_try.run_started()
        try:
            begun = self._logbook.in_thread(
                self._begin, order, started
            )  # awaited later: a save must be able to cancel at once
            self._emit(started)
            self._tell_of_cuda(plan.uncompiled)
            landed = [progress.on_message({"event": "case", "result": to_dict(result)}) for result in plan.skipped]
            await self._converse(progress, plan.request, [event for events in landed for event in events])
            await begun
            outcome = await self._conclude(order, progress)
            if isinstance(outcome, Summary):
                self.second_try.run_finished(outcome, progress, plan.request)
                self.confirmations.run_finished(outcome, progress, plan.request)
            return outcome
        finally:
            self.running = None

    def _begin(self, order: RunOrder, started: RunStarted) -> None:
        self._logbook.journal.note_old_hash(order.task)
        self._logbook.journal.start(started, order.task.name, order.environment)

    def _tell_of_cuda(self, files: Sequence[str]) -> None:
        """Once per session: a solution that is right here may not even compile on a GPU."""
        if files and not self._told_of_cuda:
            self._told_of_cuda = True
            self._emit(Notice(f"no GPU here: not compiling {', '.join(files)}, checking only the CPU path"))

    async def recall(self, order: RunOrder) -> None:
        """Puts the newest run that may be best, and that an earlier session left unconfirmed, back into the line.
        `order` is for any source of the task."""
        await self._logbook.in_thread(self._recall, order)

    def _recall(self, order: RunOrder) -> None:
        series = self._logbook.series(order.task, order.environment, order.condition)
        waiting = (run for run in reversed(series) if run.is_unsettled and may_be_best(series, run))
        run = next(waiting, None)
        if run is None or self.confirmations.knows(run.run) or not self._logbook.has_source(run.source):
            return
        source = Source(run.source, run.code, self._logbook.source(run.source))
        baseline = Baseline.parse(order.task.baseline, order.task).of(source.folder)
        order, cases = replace(order, source=source, baseline=baseline), [case.id for case in order.task.timed]
        request = self._request(order, run.run, cases, 0, self._best(order))
        self.confirmations.add(run, request, self._logbook.journal.cases_of(run.run))

    async def measure_floor(self, order: RunOrder, case: str) -> bool:
        """Measures the A/A floor of one case for later verdicts; False if interrupted."""
        request = await self._logbook.in_thread(self._floor_request, order, case)
        talk = self._supervisor.talk({"request": "floor", **to_dict(request)})
        async with contextlib.aclosing(talk) as conversation:
            async for message in conversation:
                if isinstance(message, WorkerLost) or message.get("event") in ("cancelled", "failed"):
                    return False
                if message.get("event") == "floor" and message.get("floor") is not None:
                    key, floor = self._floor_keys(order, case)[0], float(message["floor"])
                    await self._logbook.in_thread(self._logbook.journal.keep_floor, key, floor)
        return True

    def _floor_request(self, order: RunOrder, case: str) -> RunRequest:
        return self._request(order, f"floor-{secrets.token_hex(4)}", [case], 0, self._best(order))

    async def prepare_rows(self, order: RunOrder) -> None:
        """Lets the spares load the baseline and inputs of every timed row."""
        cases = [case.id for case in order.task.timed]
        run = f"prepare-{secrets.token_hex(4)}"
        request = await self._logbook.in_thread(self._request, order, run, cases, 0, None)
        self._supervisor.spares.prepare_rows({"request": "prepare", **to_dict(request)})

    def wants_floor(self, order: RunOrder, case: str) -> bool:
        measured = self._logbook.journal.last_cases.get(case)
        keys = self._floor_keys(order, case)
        return measured is not None and measured.status == "ok" and self._logbook.journal.wants_floor(*keys)

    async def _converse(self, progress: RunProgress, request: RunRequest, landed: Sequence[Event]) -> None:
        """`landed` are the rows that are not run; they come first."""
        async with contextlib.aclosing(self._supervisor.talk({"request": "run", **to_dict(request)})) as conversation:
            async for message in conversation:
                if isinstance(message, WorkerLost):
                    more = progress.on_worker_lost(message)
                else:
                    if message.get("event") == "wrote":
                        self._wrote([str(name) for name in message.get("files", ())], bool(message.get("unseen")))
                    more = progress.on_message(message)
                await self._record([*landed, *more])
                landed = ()

    async def _record(self, events: Sequence[Event]) -> None:
        """On disk first, then on the screen."""
        for event in events:
            if isinstance(event, CaseLanded):
                await self._logbook.in_thread(self._logbook.journal.case, event)
            self._emit(event)

    async def _conclude(self, order: RunOrder, progress: RunProgress) -> RunOutcome:
        journal = self._logbook.journal
        if progress.controls_passed:
            await self._logbook.in_thread(journal.keep_controls, self._controls_keys(order)[0])
        if progress.cancelled is not None:
            await self._logbook.in_thread(journal.cancel, progress.cancelled)
            self._emit(progress.cancelled)
            return progress.cancelled
        if progress.failure is not None:
            await self._logbook.in_thread(journal.fail, progress.failure)
            self._emit(progress.failure)
            return progress.failure
        summarise, problem = functools.partial(self._summarise, order, progress), ""
        if order.iteration:
            patience = PATIENCE if order.reason == "command" else SHORT_PATIENCE
            finish = self._logbook.finish
            summary, problem = await self._logbook.in_thread(finish, order.task, summarise, progress.results, patience)
        else:
            summary = await self._logbook.in_thread(self._finish_again, summarise, progress.results)
        self._emit(RunFinished(summary))
        if problem:
            self._emit(Notice(problem, "error"))
        self._say_more(summary)
        return summary

    def _finish_again(self, summarise: Callable[[], Summary], results: Mapping[str, CaseResult]) -> Summary:
        """Stores a run that makes no entry."""
        self._logbook.journal.read_new()  # runs that other processes finished meanwhile
        summary = summarise()
        self._logbook.journal.finish(summary, results.values())
        return summary

    def _say_more(self, summary: Summary) -> None:
        """Reports a problem with the log, or a better entry from another machine."""
        if summary.iteration is not None and (problem := self._logbook.problem):
            self._emit(Notice(problem, "warning"))
        first = summary.took_over and summary.best_geomean is None
        if first and (better := self._logbook.better_elsewhere(summary)):
            was = f"#{better.iteration} ({fmt.times(better.geomean)} over {summary.baseline})"
            self._emit(Notice(f"first best on this machine; the best in the log is {was}"))

    def _summarise(self, order: RunOrder, progress: RunProgress) -> Summary:
        environment = progress.environment or order.environment
        series = self._logbook.series(order.task, environment, order.condition)
        best = best_of(series)
        about = comparison.SummaryInputs(
            environment=environment,
            series=series,
            is_same_as_best=best is not None and self._logbook.is_same(order.task, best.source, order.source),
            complete=case_choice.leaves_nothing_out(order.task, order.case)
            and all(case.id in progress.results for case in order.task.timed),
            findings=progress.findings,
            seconds=time.monotonic() - order.at,
            is_iteration=order.iteration,
            repeats=self._logbook.number_of(order.source),
            failed_builds=self._logbook.journal.failed_builds,
            next=order.next_step if order.iteration else "",
            hypothesis_by=author(self._logbook.path.parent) if order.hypothesis else "",
            hypothesis_at=order.hypothesis_at or progress.started.at,
            profiled=bool(series) and self._logbook.profiled_since(series[-1]),
            baseline_hash=order.baseline.digest(order.source.folder, progress.started.best),
            command=command_of(order),
            version=__version__,
        )
        results: Mapping[str, CaseResult] = progress.results
        if self._best(order) != progress.started.best:  # another source became best; this run was not timed against it
            results = {name: replace(row, vs_best=None) for name, row in results.items()}
        return replace(comparison.summarise(order.task, progress.started, results, about), tried=order.tried)

    def _request(self, order: RunOrder, run: str, cases: Sequence[str], seed: int, best: str | None) -> RunRequest:
        known = {case: self._logbook.floor(*self._floor_keys(order, case)) for case in cases}
        is_itself = best is not None and self._logbook.is_same(order.task, best, order.source)
        rival = best if not is_itself or order.baseline.name == "best" else None
        return RunRequest(
            run=run,
            task=order.task,
            source=str(order.source.folder),
            best=str(self._logbook.source(rival)) if rival else None,
            baseline=order.baseline.for_worker(best),
            cases=tuple(cases),
            seed=0 if order.quick else seed,
            quick=order.quick,
            budget_ms=order.budget_ms,
            condition=order.condition,
            floors={case: floor for case, floor in known.items() if floor is not None},
            controls=not self._logbook.journal.controls.intersection(self._controls_keys(order)),
            build=str(self._logbook.state / "build"),
        )

    def _best(self, order: RunOrder) -> str | None:
        return self._logbook.best(order.task, order.environment, order.condition)

    def _floor_keys(self, order: RunOrder, case: str) -> list[str]:
        """Under the task's hash and the hashes that older versions gave it."""
        name = order.baseline.name + ("" if order.condition == "cold" else f", {order.condition}")
        return [floor_key(known, name, order.environment, case) for known in self._hashes(order)]

    def _controls_keys(self, order: RunOrder) -> list[str]:
        """Per device: passing under the interpreter says nothing about a GPU."""
        return [f"{known} {order.environment.device_name}" for known in self._hashes(order)]

    def _hashes(self, order: RunOrder) -> list[str]:
        return [order.task.hash, *sorted(self._logbook.journal.old_hashes(order.task))]


def command_of(order: RunOrder) -> str:
    """The shell command that repeats the run; it names the task by its folder."""
    words = ["kernbench", "run", Path(order.task.folder).name]
    words += ["--case", order.case] if order.case else []
    words += ["--grid"] if order.grid else []
    if order.baseline.name != order.task.baseline:
        words += ["--baseline", order.baseline.option]
    words += ["--device", order.environment.device] if order.task.device != "cpu" else []
    words += [f"--{order.condition}"] if order.condition != "cold" else []
    words += ["--budget", fmt.plain(order.budget_ms)] if order.budget_ms != RunOrder.budget_ms else []
    return shlex.join(words)


def _started(order: RunOrder, request: RunRequest, best: str | None) -> RunStarted:
    return RunStarted(
        run=request.run,
        source=order.source.sha,
        reason=order.reason,
        cases=request.cases,
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        baseline=order.baseline.name,
        hypothesis=order.hypothesis,
        best=best,
        seed=request.seed,
        task_hash=order.task.hash,
        code=order.source.code,
    )
