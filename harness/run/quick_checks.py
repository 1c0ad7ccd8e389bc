"""The quick checks of a case: the solution's first calls, on the fixed seed and on a fresh one.

They run before anything is timed, and a `check` case has no others. Exceptions of the solution propagate; case_run.py
turns them into a status. The slow checks are in slow_checks.py.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace

import torch

from harness.check import compare, elements
from harness.check.guarded_call import CheckResult, GuardedCall, judge, touched
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import Draw, nbytes
from harness.run.context import RunContext
from harness.run.progress import Progress
from harness.shared.run_request import Step
from harness.shared.task import Case
from harness.timing.blocks import SideFailed

MOST_INTERPRETED = 16_000_000
"""Bytes of a check case's inputs that Triton's interpreter is given: more may take longer than a check's deadline."""

NO_COMPILERS = sys.stdlib_module_names | {"harness", "numpy", "torch"}


class NeedsGpu(Exception):
    """The case is too large to be checked without a GPU."""


@dataclass(frozen=True)
class QuickChecks:
    context: RunContext
    progress: Progress

    def run(self, case: Case) -> tuple[CheckResult, list[CaseInputs]]:
        """The result, and the inputs for timing, those of the fixed seed first."""
        self.progress.step("inputs", case)
        fixed = self.context.material(case, self.context.fixed)
        if self.context.environment.interpreted and case.kind == "check" and nbytes(fixed.inputs) > MOST_INTERPRETED:
            raise NeedsGpu
        self.progress.step(self._first_step(), case)
        began = time.perf_counter()
        call = self._call(fixed)
        self.progress.emit("built", case=case.id, ms=(time.perf_counter() - began) * 1000)
        self.progress.step("check", case)
        return self._judged(case, call, fixed)

    def _first_step(self) -> Step:
        """A first call that may compile gets the build deadline: of a source that imports a package besides torch and
        numpy, which may be a compiler, or uses torch.compile. A hang of any other shows soon."""
        side = self.context.cache.side("solution")
        never = NO_COMPILERS | ({"triton"} if self.context.device == "cpu" else set())
        may = side is not None and (side.imports() - never or side.mentions("torch.compile"))
        return "build" if may else "check"

    def _call(self, material: CaseInputs) -> GuardedCall:
        """A checked call of the solution; running out of memory in it is the solution's fault."""
        try:
            return GuardedCall.of(self.context.solution, material, self.context.task, material)
        except torch.OutOfMemoryError as problem:
            raise SideFailed("solution") from problem

    def _judged(self, case: Case, call: GuardedCall, fixed: CaseInputs) -> tuple[CheckResult, list[CaseInputs]]:
        task, seed = self.context.task, self.context.request.seed
        interpreted = self.context.environment.interpreted
        judgement = judge(call, fixed, fixed.expected, task, interpreted)
        if compare.form(call.outputs, fixed.expected, task) is None:
            judgement = replace(judgement, exact=elements.equal_share(call.outputs, fixed.expected))
        if judgement.problem is None and case.kind == "check":  # the slow checks do this for other cases
            judgement = replace(judgement, problem=touched(call, fixed, task))
        if judgement.problem is not None or seed == 0:
            return judgement, [fixed]
        fresh = self.context.material(case, Draw(seed))
        again = judge(self._call(fresh), fresh, fixed.expected, task, interpreted)
        if again.problem is not None:
            return replace(again, problem=f"{again.problem} ({fresh.draw})", exact=judgement.exact), [fixed]
        return replace(judgement, findings=judgement.findings or again.findings), [fixed, fresh]
