"""Tries wrong rows again in a clean worker while nothing else is to be done: a row that is right then is unsteady.

Only the run of a save or of the opening is tried again, once, with the same source, seed and baseline; at most
MOST_ROWS rows, so that a kernel that is wrong everywhere costs little. Not if the source changed its process or the
task, or wrote into the task's folder: then the second run would not be the same. A save cancels the try, and nothing
comes of it. A row that is wrong again is not mentioned.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.lines import to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import RunRequest
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.events import CaseLanded, Event, Notice, RunStarted, Summary
from kernbench.log.logbook import Logbook
from kernbench.worker.process import WorkerLost
from kernbench.worker.supervisor import Supervisor

MOST_ROWS = 4
WORD = "unsteady: wrong in one of two runs"
PATIENCE = 0.2
"""Seconds to wait for the lock of ITERATIONS.md."""


@dataclass(frozen=True)
class WrongRun:
    """A run with rows to try again."""

    started: RunStarted
    request: RunRequest
    rows: Sequence[CaseResult]
    """In the task's order."""


class SecondTry:
    def __init__(self, supervisor: Supervisor, logbook: Logbook, emit: Callable[[Event], None]) -> None:
        self._supervisor, self._logbook, self._emit = supervisor, logbook, emit
        self._next: WrongRun | None = None

    def run_started(self) -> None:
        """The rows of the run before are not tried again any more."""
        self._next = None

    def run_finished(self, summary: Summary, progress: RunProgress, request: RunRequest) -> None:
        """Notes the wrong rows of a run, if they are to be tried again."""
        is_fit = progress.started.reason in ("save", "open") and not progress.wrote
        rows = [row for case in request.task.cases if (row := progress.results.get(case.id)) and row.status == "wrong"]
        if is_fit and rows and not any(finding.disqualifying for finding in summary.findings):
            same = replace(request, fixed_seed=progress.fixed_seed)
            self._next = WrongRun(progress.started, same, rows[:MOST_ROWS])

    async def carry_out(self, is_interrupted: Callable[[], bool]) -> bool:
        """Tries the last run's wrong rows again; returns whether that took a spare."""
        run, self._next = self._next, None
        if run is None or is_interrupted() or not await self._supervisor.renew():
            return False
        if not is_interrupted() and (right := await self._right_now(run)):
            await self._correct(run, [row for row in run.rows if row.id in right])
        return True

    async def _right_now(self, run: WrongRun) -> set[str]:
        """The rows that are right the second time; none if the run did not reach its end."""
        cases = tuple(row.id for row in run.rows)
        request = replace(run.request, run=f"again-{secrets.token_hex(4)}", cases=cases, controls=False)
        progress = RunProgress(request.task, replace(run.started, run=request.run, cases=cases), request.source, 0)
        async with contextlib.aclosing(self._supervisor.talk({"request": "run", **to_dict(request)})) as conversation:
            async for message in conversation:
                if isinstance(message, WorkerLost):
                    return set()
                progress.on_message(message)
        has_ended = progress.failure is None and progress.cancelled is None
        if not has_ended or any(finding.disqualifying for finding in progress.findings):
            return set()
        return {name for name, row in progress.results.items() if row.status in ("ok", "interpreted")}

    async def _correct(self, run: WrongRun, rows: Sequence[CaseResult]) -> None:
        """On disk first, then on the screen."""
        corrected = [_unsteady(row) for row in rows]
        names = fmt.joined([run.request.task.case(row.id).label for row in rows])
        was, it_counts = ("was", "it counts") if len(rows) == 1 else ("were", "they count")
        sentence = f"{names} {was} right in a new worker; {WORD}"
        problem = await self._logbook.in_thread(self._logbook.correct, run.started.run, corrected, sentence, PATIENCE)
        for row in corrected:
            self._emit(CaseLanded(run.started.run, row))
        said = f"{names} {was} right when tried again in a new worker: unsteady, so {it_counts} as wrong"
        unsaid = f" (not noted in the entry: {problem})" if problem else ""
        self._emit(Notice(f"{said}; look for a race or uninitialized memory{unsaid}", "warning"))


def _unsteady(row: CaseResult) -> CaseResult:
    detail = f"{WORD}; {row.detail}" if row.detail else WORD
    return replace(row, detail=detail, findings=(*row.findings, findings.make("unsteady")))
