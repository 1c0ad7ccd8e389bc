"""The slow checks of a case: results of timed calls, other values, untouched inputs, no aliasing, identical bits twice,
the task's `check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.check import compare, memoised
from harness.check.guarded_call import CheckResult, GuardedCall, judge, touched
from harness.check.threads import ThreadWatch
from harness.inputs import tensor_layout, variation
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import BadOutput, Draw, Outputs, Reference, named_outputs
from harness.load.failure import BadTask, describe
from harness.shared.findings import make
from harness.shared.results import Finding
from harness.shared.task import Case, Task
from harness.timing.clocks import Clock
from harness.timing.spot_checks import KeptCall

WIDE, WIDER = 64.0, 4.0
"""Spreads of values; the second where the first is too much for the reference itself."""


@dataclass(frozen=True)
class SlowChecks:
    task: Task
    reference: Reference
    device: str
    seed: int
    interpreted: bool
    clock: Clock | None = None
    """Measures what a call does; None if nothing is timed."""
    threads: ThreadWatch | None = None
    kept: Sequence[KeptCall] = ()
    """Results of timed calls."""
    masters: Sequence[Draw] = ()
    """What the inputs of timed calls were drawn from."""

    def draws(self) -> list[Draw]:
        if not self.reference.scales:
            return [Draw(self.seed + 1), Draw(self.seed + 2)]
        draws = [Draw(self.seed + 1, spread=WIDE), Draw(self.seed + 2, spread=0.25), Draw(self.seed + 3, offset=3.0)]
        return draws[:1] if self.interpreted else draws

    def run(self, case: Case, function: Callable[..., Any], fixed: CaseInputs, beat: Callable[[], None]) -> CheckResult:
        """Runs all slow checks of one case; `beat` is called between calls and may raise to stop."""
        judgement, findings = self._twice(case, function, fixed, beat)
        if judgement.problem is not None:
            return replace(judgement, findings=(*judgement.findings, *findings))
        judgement = self._timed_calls(case, fixed, beat)
        if judgement.problem is not None:
            return replace(judgement, findings=(*judgement.findings, *findings))
        less: list[bool] = []
        for draw in self.draws():
            beat()
            material = CaseInputs(self.reference, case, draw, self.device)
            if self.clock is not None and (self.clock.name != "device" or not less):  # records need no second draw
                less.append(memoised.second_call_is_cheaper(self.clock, function, fixed, material, self.task.mutates))
            judgement = self._draw(function, fixed, material)
            if judgement.problem is None and draw.spread == WIDE and not self._proves(material):
                draw = replace(draw, spread=WIDER)
                judgement = self._draw(function, fixed, CaseInputs(self.reference, case, draw, self.device))
            if judgement.problem is not None:
                detail = f"{judgement.problem} ({draw})"
                return replace(judgement, problem=detail, findings=(*findings, *judgement.findings))
        return CheckResult(findings=(*findings, make("result_kept")) if less and all(less) else findings)

    def _timed_calls(self, case: Case, fixed: CaseInputs, beat: Callable[[], None]) -> CheckResult:
        """Judges the results that were kept while the calls were timed."""
        masters = {fixed.draw: fixed}
        for call in self.kept:
            beat()
            draw = self.masters[call.master]
            if draw not in masters:
                masters[draw] = CaseInputs(self.reference, case, draw, self.device)
            values = variation.varied(masters[draw].inputs, call.lot, call.names)
            material = CaseInputs(self.reference, case, draw, self.device, values)
            problem = self._timed_call(call, material, fixed)
            if problem is not None and self._reference_holds(material):
                return CheckResult(f"{problem} (in a timed call)")
        return CheckResult()

    def _timed_call(self, call: KeptCall, material: CaseInputs, fixed: CaseInputs) -> str | None:
        inputs = {**material.inputs, **call.mutated}
        try:
            outputs = named_outputs(call.result, inputs, self.task.written, fixed.expected)
        except BadOutput as problem:
            return str(problem)
        wrong = compare.form(outputs, fixed.expected, self.task.layout)
        return wrong or compare.compare(outputs, material.truth, self.task).problem

    def _twice(
        self, case: Case, function: Callable[..., Any], fixed: CaseInputs, beat: Callable[[], None]
    ) -> tuple[CheckResult, tuple[Finding, ...]]:
        first = GuardedCall.of(function, fixed, self.task, fixed)
        late = self.threads is not None and self.threads.at_work()
        judgement = judge(first, fixed, fixed.expected, self.task)
        judgement = judgement if judgement.problem else self._manners(case, first, fixed)
        findings = (make("returned_too_soon"),) if late else ()
        if judgement.problem is not None:
            return judgement, findings
        outputs = first.outputs
        del first  # frees its inputs; the outputs stay, so that the next call cannot reuse their memory
        beat()
        second = GuardedCall.of(function, fixed, self.task, fixed)
        if compare.shared(outputs, second.outputs):
            findings = (*findings, make("output_kept"))
        elif not _same(outputs, second.outputs):
            findings = (*findings, make("nondeterministic"))
        return judgement, findings

    def _manners(self, case: Case, call: GuardedCall, material: CaseInputs) -> CheckResult:
        problem = touched(call, material, self.task)
        return CheckResult(problem) if problem is not None else self._own_checks(case, call)

    def _own_checks(self, case: Case, call: GuardedCall) -> CheckResult:
        """Runs the task's `check`, which returns rows of (name, error, bound)."""
        own, axes = self.reference.extra_check, dict(case.axes)
        if own is None:
            return CheckResult()
        outputs = call.outputs if self.task.written else call.result
        try:
            rows = [(str(name), float(error), float(bound)) for name, error, bound in own(axes, call.inputs, outputs)]
        except BaseException as problem:
            fault = describe(problem, self.reference.paths)
            said = f"check() in reference.py raised an error for case {case.id}: {fault.message}"
            raise BadTask(said, fault.where) from None
        for name, error, bound in rows:
            if not error <= bound:
                return CheckResult(f"check {name!r}: error {error:.3g}, allowed {bound:.3g}")
        return CheckResult()

    def _draw(self, function: Callable[..., Any], fixed: CaseInputs, material: CaseInputs) -> CheckResult:
        call = GuardedCall.of(function, material, self.task, fixed)
        if not _finite(material.truth):  # then only the borders can be checked
            return judge(call, material, fixed.expected, self.task) if call.breach else CheckResult()
        judgement = judge(call, material, fixed.expected, self.task)
        if judgement.problem is None or judgement.findings or self._reference_holds(material):
            return judgement
        return CheckResult()

    def _proves(self, material: CaseInputs) -> bool:
        """Whether a source that is right for these values is right."""
        return _finite(material.truth) and self._reference_holds(material)

    def _reference_holds(self, material: CaseInputs) -> bool:
        """Whether the reference passes: values this wide may exceed the tolerance for any source, proving nothing."""
        return compare.compare(material.expected, material.truth, self.task).problem is None


def _same(first: Outputs, second: Outputs) -> bool:
    return len(first) == len(second) and all(
        one is None or (other is not None and tensor_layout.same_bits(one.contiguous(), other.contiguous()))
        for one, other in zip(first.values(), second.values(), strict=True)
    )


def _finite(truth: Outputs) -> bool:
    """Whether truth is finite everywhere; NaN and infinities survive a sum."""
    return all(value is None or bool(torch.isfinite(value.sum())) for value in truth.values())
