"""Rows of the table: answers a case, adds a late baseline, and runs the slow checks.

Each of the three steps emits the current row. An exception in user code becomes the row's status, and a failed row has
no time. Only a cancel and an error in the task itself propagate to the run, which calls all three steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from harness.check.threads import ThreadWatch
from harness.inputs.reference import forms
from harness.load import interpreter
from harness.load.exception_text import one_line
from harness.load.failure import BadTask
from harness.run.case_timing import CaseTiming
from harness.run.context import RunContext
from harness.run.failures import CaseFailures
from harness.run.opponents import Opponents
from harness.run.progress import Cancelled, Progress
from harness.run.quick_checks import QuickChecks
from harness.run.slow_checks import SlowChecks
from harness.shared import findings
from harness.shared.codes import explain
from harness.shared.results import CaseResult, Status
from harness.shared.task import Case
from harness.timing.case_timer import CaseTimer


@dataclass
class Row:
    """A case that passed the quick checks and still needs the slow ones."""

    case: Case
    result: CaseResult

    @property
    def lacks_baseline(self) -> bool:
        return self.result.reason == "baseline_compiling"


class CaseRun:
    def __init__(
        self,
        context: RunContext,
        opponents: Opponents,
        timer: CaseTimer,
        progress: Progress,
        failures: CaseFailures,
        threads: ThreadWatch,
    ) -> None:
        self._context, self._timer, self._progress = context, timer, progress
        self._failures, self._threads = failures, threads
        self._quick = QuickChecks(context, progress)
        self._contest = CaseTiming(context, opponents, timer, progress)

    def answer(self, case: Case) -> Row | None:
        """Runs the quick checks and times one case; None if nothing is left to check."""
        try:
            result = self._try(case)
        except (Cancelled, BadTask):
            raise
        except BaseException as problem:
            result = self._failures.row(case, problem)
        self._progress.done += 1
        right = result.status in ("ok", "interpreted")
        if right and case.kind == "check":  # many and small: two draws are enough
            result, right = replace(result, checked=2), False
        self._land(result)
        self._context.cache.trim()
        return Row(case, result) if right else None

    def catch_up(self, row: Row) -> None:
        """Adds the comparison that was missing because the baseline was still compiling."""
        case = row.case
        try:
            materials = [self._context.material(case, draw) for draw in self._context.masters()]
            done = row.result
            bare = CaseResult(
                case.id,
                "ok",
                known=case.known,
                error=done.error,
                errors=done.errors,
                inputs=done.inputs,
                checked=1,
                exact=done.exact,
            )
            row.result = self._contest.time(case, bare, materials, patient=True)
        except (Cancelled, BadTask):
            raise
        except BaseException as problem:
            row.result = self._failures.row(case, problem)
        self._land(row.result)
        self._context.cache.trim()

    def recheck(self, row: Row, is_last_try: bool = True) -> bool:
        """Adds the findings of the slow checks; a row that fails them loses its time. False if memory ran out and there
        is another try."""
        self._progress.step("recheck", row.case)
        slow = self._slow_checks(row)
        try:
            fixed = self._context.material(row.case, self._context.fixed)
            beat = self._progress.pulse(row.case, "recheck")
            judgement = slow.run(row.case, self._context.solution, fixed, beat)
            timed = self._contest.with_others(row.case, row.result) if judgement.problem is None else row.result
        except (Cancelled, BadTask):
            raise
        except torch.OutOfMemoryError as problem:  # what was checked and timed so far remains valid
            detail = self._failures.row(row.case, problem).detail  # frees what this case and the cache held, too
            if not is_last_try:
                self._contest.kept[row.case.id] = [*slow.kept]
                return False
            fewer = findings.make("fewer_checks", detail=detail)
            result = replace(row.result, checked=2, findings=(*row.result.findings, fewer))
        except BaseException as problem:
            result = replace(self._failures.row(row.case, problem), checked=2)
        else:
            known = timed.findings
            more = tuple(found for found in judgement.findings if found not in known)
            result = replace(timed, checked=2, findings=(*known, *more))
            if judgement.problem is not None:
                result = result.untimed("wrong", judgement.problem, error=judgement.error, errors=judgement.errors)
        self._land(result)
        return True

    def _try(self, case: Case) -> CaseResult:
        launches = interpreter.launches()
        judgement, materials = self._quick.run(case)
        is_emulated = interpreter.launches() > launches
        interpreted = self._context.environment.interpreted or is_emulated
        status: Status = "interpreted" if interpreted else "ok"
        result = CaseResult(
            case.id,
            status,
            known=case.known,
            error=judgement.error,
            errors=judgement.errors,
            checked=1,
            exact=judgement.exact,
        )
        if case.kind == "case":
            result = replace(result, inputs=forms(materials[0].inputs))
        if judgement.problem is not None:
            return result.untimed("wrong", judgement.problem, *judgement.findings)
        result = replace(result, findings=judgement.findings)
        if case.kind == "case" and is_emulated:
            why = explain("interpreted_kernel")
            result = replace(result, detail=why.detail, reason=why.reason)
        if case.kind != "case" or interpreted:
            return result
        return self._contest.time(case, result, materials)

    def _slow_checks(self, row: Row) -> SlowChecks:
        context, case, interpreted = self._context, row.case, row.result.status == "interpreted"
        clock = None if interpreted or case.kind != "case" else self._timer.clock()
        seed = context.request.seed
        kept, masters = self._contest.kept.pop(case.id, []), context.masters()
        return SlowChecks(
            context.task, context.reference, context.device, seed, interpreted, clock, self._threads, kept, masters
        )

    def _land(self, result: CaseResult) -> None:
        if result.detail is not None:  # it may quote names that the source chose
            result = replace(result, detail=one_line(result.detail))
        poisoned = result.status == "runtime_error" and self._failures.is_poisoned()
        elsewhere = result.status == "runtime_error" and self._failures.elsewhere and not poisoned
        self._progress.emit("case", result=result, **({"elsewhere": True} if elsewhere else {}))
        if poisoned:
            self._failures.leave()
