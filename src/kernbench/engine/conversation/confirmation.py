"""Confirms a best in a clean worker while nothing else is to be done; until then its run is only `best?`.

The worker of a run has executed other sources, and the source itself has seen the run's seed. So a new worker times the
rows of the run again, with a new seed, and the judge, a process that never loads a solution, compares many calls with
the reference. The run is best if the rows are right, nothing disqualifies them, every row was judged without
a problem, the geomeans of both agree, and the new times alone show the gain.

The newest run comes first. A save cancels a confirmation, which then waits for the next idle time; after WAITS_AT_MOST
seconds it comes before the next save. A worker lost for another reason is replaced once. Where only times are against
a run, they are taken once more: another program may have been the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.lines import UNREADABLE, decode_checked, to_dict
from harness.shared.results import CaseResult, Ratio
from harness.shared.run_request import RunRequest
from kernbench import render
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.events import Confirmed, Confirming, Event, Notice, RunStarted, Summary
from kernbench.log.logbook import Logbook
from kernbench.log.runs import comparison
from kernbench.log.runs.series import best_of, may_be_best
from kernbench.worker.judge import JudgeLost
from kernbench.worker.process import Unusable, WorkerLost
from kernbench.worker.supervisor import Supervisor

WAITS_AT_MOST = 30.0
"""Seconds for which saves may keep a confirmation waiting."""
TRIES = 2
TIMES = frozenset({"opponent_slowed"})
"""Findings that another program may cause."""
PATIENCE = 0.2
"""Seconds to wait for the lock of ITERATIONS.md; also those that a save waits for a judge that is just starting."""
AGAIN = "run it again"
Message = dict[str, Any] | WorkerLost | None
Conversation = AsyncGenerator[dict[str, Any] | WorkerLost, None]
CANCELLED = WorkerLost("cancelled", "load", None, "the worker was not asked yet")


@dataclass
class Candidate:
    """A run that would be best, and the request that times it again."""

    summary: Summary
    request: RunRequest
    """With the rows that were timed; each attempt has its own id and seed."""
    since: float = field(default_factory=time.monotonic)
    """When its run ended; after a start, when it was put back into the line."""
    is_repeated: bool = False
    """Whether only times were against it once."""
    lost: int = 0
    """How many workers were lost with it."""


@dataclass(frozen=True)
class Judged:
    """A case's `judged` line: how many of its calls were compared with the reference, and what was wrong."""

    case: str
    calls: int
    problem: str | None


@dataclass(frozen=True)
class Attempt:
    """A conversation that was not cancelled."""

    progress: RunProgress
    judged: Mapping[str, Judged]
    lost: WorkerLost | None
    seconds: float


class Confirmations:
    def __init__(
        self,
        supervisor: Supervisor,
        logbook: Logbook,
        emit: Callable[[Event], None],
        wrote: Callable[[Sequence[str], bool], None] = lambda files, unseen: None,
    ) -> None:
        """`wrote` is called with the files that the kernel is about to write."""
        self._supervisor, self._logbook, self._emit, self._wrote = supervisor, logbook, emit, wrote
        self._line: list[Candidate] = []
        """Newest first."""
        self._preparing: asyncio.Task[str] | None = None
        """Starts the judge; kept here, because a task that nothing refers to may be lost."""
        self._no_judge = ""
        """Why the judge did not start, as last reported."""
        self.running: Summary | None = None
        """The run whose source is being confirmed."""
        self.comes_first = False
        """It has waited long enough: a save does not cancel it."""
        self.after: Callable[[], Awaitable[None]] | None = None
        """Called when the kernel has stopped; set by the session."""

    def run_finished(self, summary: Summary, progress: RunProgress, request: RunRequest) -> None:
        """Puts a run that would be best into the line."""
        if summary.is_unsettled:
            self.add(summary, request, progress.results)

    def add(self, summary: Summary, request: RunRequest, rows: Mapping[str, CaseResult]) -> None:
        """`rows` are those of the run: it is confirmed with the timed ones."""
        timed = {case.id for case in request.task.timed if case.id in rows and rows[case.id].status == "ok"}
        cases = tuple(case for case in request.cases if case in timed)
        others = [item for item in self._line if not summary.names & item.summary.names]
        self._line = [Candidate(summary, replace(request, cases=cases, controls=False)), *others]

    @property
    def is_waiting(self) -> bool:
        """Whether one is in the line."""
        return bool(self._line)

    @property
    def needs_compiler(self) -> bool:
        """Whether the next one compares with torch.compile, which a spare loads last."""
        return bool(self._line) and self._line[0].request.baseline == "compile"

    def knows(self, run: str) -> bool:
        return any(item.summary.run == run for item in self._line)

    @property
    def is_overdue(self) -> bool:
        """Whether saves have kept one waiting for so long that it comes before the next."""
        return self._overdue() is not None

    def _overdue(self) -> Candidate | None:
        now = time.monotonic()
        return next((item for item in self._line if now - item.since >= WAITS_AT_MOST), None)

    async def come_first(self) -> None:
        """Confirms the one that has waited long enough; a save does not cancel it."""
        await self._settle_late()
        item, end = self._overdue(), time.monotonic() + PATIENCE
        if item is None or not await self._may_begin(lambda: time.monotonic() > end):
            return
        waited = fmt.seconds(WAITS_AT_MOST)
        self._emit(Notice(f"confirming {render.source_name(item.summary)} before this save: it has waited {waited}"))
        self.comes_first = True
        try:
            await self._confirm(item, lambda: False)
        finally:
            self.comes_first = False

    async def carry_out(self, is_interrupted: Callable[[], bool]) -> bool:
        """Confirms the next one; returns whether that took a new worker, and another may be left."""
        await self._settle_late()
        item = self._line[0] if self._line else None
        if item is None or not await self._may_begin(is_interrupted):
            return False
        if not is_interrupted():
            await self._confirm(item, is_interrupted)
        return True

    async def _may_begin(self, is_interrupted: Callable[[], bool]) -> bool:
        """Whether the judge is ready and the worker is a new one. A save does not wait for the judge to start."""
        self._preparing = asyncio.create_task(self._prepare_judge())
        while not self._preparing.done():
            if is_interrupted():
                return False
            await asyncio.wait([self._preparing], timeout=0.05)
        if problem := self._preparing.result():
            self._say_no_judge(problem)
            return False
        is_taken = self._supervisor.is_gpu_lent or not self._supervisor.pids  # the workers made room for a profile
        return not is_interrupted() and not is_taken and await self._clean_worker()

    async def _prepare_judge(self) -> str:
        """Why there is none; empty if it is ready."""
        try:
            await self._supervisor.judge.prepare()
        except JudgeLost as problem:
            return str(problem)
        return ""

    def _say_no_judge(self, problem: str) -> None:
        """Once. Where only one process may use the GPU, none can start next to the worker."""
        if problem != self._no_judge:
            self._no_judge = problem
            self._emit(Notice(f"{problem}, so runs stay `best?`; is there room for another process?", "warning"))

    async def _clean_worker(self) -> bool:
        """Replaces the worker: by a spare, or, where there is no room for one, by starting it again."""
        if await self._supervisor.renew():
            return True
        if self._supervisor.spares.may_start or self._supervisor.spares.pids:
            return False  # the next idle time starts one, or one is still warming up
        await self._supervisor.close()
        await self._supervisor.ready()
        return True

    async def _settle_late(self) -> None:
        """Refuses those that cannot be best any more, and takes those that are settled out of the line."""
        if self._line:
            await self._tell(*await self._logbook.in_thread(self._refuse_late, self._line[0]))

    def _refuse_late(self, item: Candidate) -> tuple[list[Confirmed], str]:
        """Every run of the series that waits but cannot be best any more, in the line or not; in a thread."""
        self._logbook.journal.read_new()
        series = self._series(item)
        late = [run for run in series if run.is_unsettled and not may_be_best(series, run)]
        events = [Confirmed(run.run, False, _too_late(series, run)) for run in late]
        problems = [self._logbook.confirm(event, item.request.task.baseline, PATIENCE) for event in events]
        return events, next(filter(None, problems), "")

    def _series(self, item: Candidate) -> list[Summary]:
        request, summary = item.request, item.summary
        return self._logbook.series(request.task, summary.environment, request.condition)

    async def _confirm(self, item: Candidate, is_interrupted: Callable[[], bool]) -> None:
        self.running = item.summary
        self._emit(Confirming(item.summary.run, item.summary.iteration, True, self.comes_first))
        try:
            attempt = await self._attempt(item, is_interrupted)
        finally:
            self.running = None
            self._emit(Confirming(item.summary.run, item.summary.iteration, False))
            if self.after is not None:
                await self.after()
        if attempt is None:
            return
        if attempt.lost is not None:
            item.lost += 1
            with contextlib.suppress(Unusable):  # the next save says so
                await self._supervisor.ready()
        if attempt.lost is not None and item.lost < TRIES:
            return
        event = verdict(item.summary, attempt)
        if not event.confirmed and not item.is_repeated and attempt.lost is None and not _refusal(attempt, TIMES):
            item.is_repeated = True
            return
        await self._settle(item, event)

    async def _attempt(self, item: Candidate, is_interrupted: Callable[[], bool]) -> Attempt | None:
        """None if a save or a profile came first."""
        seed, began = random.SystemRandom().randrange(1, 2**31), time.monotonic()
        request = replace(item.request, run=f"confirm-{secrets.token_hex(4)}", seed=seed)
        about = item.summary
        started = RunStarted(request.run, about.source, "command", request.cases, about.at, about.baseline)
        progress, judged = RunProgress(request.task, started, request.source, 0), dict[str, Judged]()
        talk = self._supervisor.confirm({"request": "confirm", **to_dict(request)})
        async with contextlib.aclosing(talk) as conversation:
            message = await self._first(conversation, is_interrupted)
            while isinstance(message, dict):
                self._take(message, progress, judged)
                if is_interrupted():  # perhaps before the worker was asked
                    self._supervisor.cancel()
                message = await anext(conversation, None)
        if progress.cancelled is not None or (message is not None and message.kind == "cancelled"):
            return None
        return Attempt(progress, judged, message, time.monotonic() - began)

    async def _first(self, conversation: Conversation, is_interrupted: Callable[[], bool]) -> Message:
        """The first message. A save does not wait for the judge, which loads the task's reference before it."""

        async def wait() -> Message:
            return await anext(conversation, None)

        waiting = asyncio.create_task(wait())
        try:
            while not waiting.done() and (self._supervisor.busy or not is_interrupted()):
                await asyncio.wait([waiting], timeout=0.05)
        finally:
            is_done = waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return waiting.result() if is_done else CANCELLED

    def _take(self, message: dict[str, Any], progress: RunProgress, judged: dict[str, Judged]) -> None:
        if message.get("event") == "wrote":
            self._wrote([str(name) for name in message.get("files", ())], bool(message.get("unseen")))
        if message.get("event") != "judged":
            progress.on_message(message)
            return
        with contextlib.suppress(*UNREADABLE):  # a case that has no such line was not judged
            line = decode_checked(Judged, message)
            judged[line.case] = line

    async def _settle(self, item: Candidate, event: Confirmed) -> None:
        """On disk first, then on the screen. Other runs of the same source that wait are settled with it, and those
        that cannot be best any more are refused."""
        self._line = [other for other in self._line if other is not item]
        await self._tell(*await self._logbook.in_thread(self._store, item, event))
        await self._tell(*await self._logbook.in_thread(self._refuse_late, item))

    async def _tell(self, events: Sequence[Confirmed], problem: str) -> None:
        unsettled = await self._logbook.in_thread(self._unsettled)
        self._line = [item for item in self._line if item.summary.run in unsettled]
        for event in events:
            self._emit(event)
        if problem:
            self._emit(Notice(f"the confirmation is not noted in the entry: {problem}", "warning"))

    def _unsettled(self) -> set[str]:
        return {run.run for run in self._logbook.journal.summaries if run.is_unsettled}

    def _store(self, item: Candidate, event: Confirmed) -> tuple[list[Confirmed], str]:
        alike = [run for run in self._series(item) if run.is_unsettled and item.summary.names & run.names]
        runs = dict.fromkeys([item.summary.run, *(run.run for run in alike)])
        events = [replace(event, run=run) for run in runs]
        usual = item.request.task.baseline
        problems = [self._logbook.confirm(settled, usual, PATIENCE) for settled in events]
        return events, next(filter(None, problems), "")


def verdict(run: Summary, attempt: Attempt) -> Confirmed:
    """What came of an attempt, and why."""
    task, progress = attempt.progress.task, attempt.progress
    mean, direct = comparison.means(task, progress.results)
    calls = sum(line.calls for line in attempt.judged.values())
    refusal = _refusal(attempt) or _disagreement(run, mean, direct, comparison.unproven(task, run, progress.results))
    measured = render.interval(mean) if mean else fmt.DASH
    why = refusal or f"{measured} in a new worker; {fmt.plural(calls, 'call')} judged"
    event = Confirmed(run.run, not refusal, why, judged=calls, seconds=attempt.seconds)
    return replace(event, geomean=mean.speedup, low=mean.low, high=mean.high) if mean else event


def _refusal(attempt: Attempt, besides: frozenset[str] = frozenset()) -> str:
    """What went wrong, of the worker, a row or a call, `besides` some findings; empty if nothing did."""
    progress, lost = attempt.progress, attempt.lost
    if lost is not None:
        doing = f"the worker {lost.detail} while {render.STEP_WORDS.get(lost.step, lost.step)}"
        return f"{lost.detail if lost.detail.startswith('the judge ') else doing} (in the confirmation)"
    if progress.failure is not None:
        said = progress.failure
        return f"{render.place(said.where, said.message)} (in the confirmation)"
    found = next((finding for finding in progress.findings if finding.disqualifying), None)
    if found is not None:
        return f"{found.name}: {found.help} (in the confirmation)"
    for case in progress.started.cases:
        if problem := _problem(progress.results.get(case), attempt.judged.get(case), besides):
            return f"{progress.task.case(case).label}: {problem} (in the confirmation)"
    return ""


def _problem(row: CaseResult | None, judged: Judged | None, besides: frozenset[str]) -> str:
    if row is None:
        return "not run"
    if row.status != "ok":
        return render.place(row.where, row.detail or render.STATUS_WORDS[row.status])
    found = next((finding for finding in row.findings if finding.disqualifying and finding.code not in besides), None)
    if found is not None:
        return f"{found.name}: {found.help}"
    return "not judged" if judged is None or not judged.calls else judged.problem or ""


def _disagreement(run: Summary, mean: Ratio | None, direct: Ratio | None, unproven: str) -> str:
    """Both numbers where they disagree, the geomeans over the baseline, then those over the best; and where the new
    ones alone do not show what the run claims, those that it is about."""
    last = ""
    for over, first, second in (("", run.ratio, mean), (" over the best", run.vs_best, direct)):
        if first is None:
            continue
        if second is None:
            return f"{render.interval(first)}{over} in the run, no time in a new worker; {AGAIN}"
        last = f"{render.interval(first)}{over} in the run, {render.interval(second)} in a new worker"
        if not meet(first, second):
            return f"{last}; {AGAIN}"
    return f"{last}: {unproven}; {AGAIN}" if unproven else ""


def meet(one: Ratio, other: Ratio) -> bool:
    """Whether two intervals overlap if each is widened by the margin on either side."""
    down, up = 1 / (1 + stats.MARGIN), 1 + stats.MARGIN
    return one.low * down <= other.high * up and other.low * down <= one.high * up


def _too_late(series: Sequence[Summary], run: Summary) -> str:
    """Why a run cannot be best any more."""
    best = best_of(series)
    if best is None or best.geomean == run.best_geomean:
        return "a later run of the same source was wrong"
    return f"it was not timed against {render.source_name(best)}, which is best now; {AGAIN} to compare them"
