"""The slow checks of a case: results of timed calls, other values, untouched inputs, no aliasing, identical bits twice,
the task's `check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.check import compare, memoised, verdicts
from harness.check.guarded_call import CheckResult, GuardedCall, judge, touched
from harness.check.threads import ThreadWatch
from harness.inputs import tensor_layout, variation
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import BadOutput, Draw, Outputs, Reference
from harness.shared import format as fmt
from harness.shared.findings import make
from harness.shared.results import Finding
from harness.shared.task import Case, Task
from harness.timing.clocks import Clock
from harness.timing.spot_checks import KeptCall

WIDE, WIDER = 64.0, 4.0
"""Spreads of values; the second where the first is too much for the reference itself."""
NARROW, SHIFT = 0.25, 3.0
"""A narrow draw shifted down has no value above zero: a masked load of 0 then wins a maximum that it must lose."""


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
        wide, below = Draw(self.seed + 1, spread=WIDE), Draw(self.seed + 2, spread=NARROW, offset=-SHIFT)
        return [wide, below] if self.interpreted else [wide, below, Draw(self.seed + 3, offset=SHIFT)]

    def run(self, case: Case, function: Callable[..., Any], fixed: CaseInputs, beat: Callable[[], None]) -> CheckResult:
        """Runs all slow checks of one case; `beat` is called between calls and may raise to stop."""
        judgement, findings = self._twice(function, fixed, beat)
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
            if judgement.problem is None and draw.spread == WIDE and not self._proves(material, fixed):
                draw = replace(draw, spread=WIDER)
                judgement = self._draw(function, fixed, CaseInputs(self.reference, case, draw, self.device))
            if judgement.problem is not None:
                detail = f"{judgement.problem} ({draw})"
                return replace(judgement, problem=detail, findings=(*findings, *judgement.findings))
            findings = (*findings, *(note for note in judgement.findings if note not in findings))
        judgement = self._outliers(case, function, fixed)
        if judgement.problem is not None:
            return replace(judgement, findings=(*findings, *judgement.findings))
        return CheckResult(findings=(*findings, make("result_kept")) if less and all(less) else findings)

    def _outliers(self, case: Case, function: Callable[..., Any], fixed: CaseInputs) -> CheckResult:
        """Usual values with a few wide ones among them: a source may look at a sample to tell wide draws apart."""
        if not self.reference.scales or self.interpreted:
            return CheckResult()
        usual = CaseInputs(self.reference, case, Draw(self.seed + 4), self.device)
        names = variation.free_names([usual.inputs], self.task.outputs)
        values = variation.with_outliers(usual.inputs, names, self.seed, WIDE)
        judgement = self._draw(function, fixed, CaseInputs(self.reference, case, usual.draw, self.device, values))
        if judgement.problem is None:
            return judgement
        detail = f"{judgement.problem} ({usual.draw}, {variation.OUTLIERS} values {fmt.plain(WIDE)} times as wide)"
        return replace(judgement, problem=detail)

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
            if problem is not None and verdicts.reference_holds(material, fixed):
                return CheckResult(f"{problem} (in a timed call)")
        return CheckResult()

    def _timed_call(self, call: KeptCall, material: CaseInputs, fixed: CaseInputs) -> str | None:
        inputs = {**material.inputs, **call.mutated}
        if not call.is_unchanged:
            return "a copy of its result was changed after the call"
        try:
            answer = verdicts.Answer.to(material, call.result, inputs, fixed.expected)
        except BadOutput as problem:
            return str(problem)
        return verdicts.verdict(answer, material, fixed.expected).problem

    def _twice(
        self, function: Callable[..., Any], fixed: CaseInputs, beat: Callable[[], None]
    ) -> tuple[CheckResult, tuple[Finding, ...]]:
        if self.threads is not None:
            self.threads.look()
        first = GuardedCall.of(function, fixed, self.task, fixed)
        late = self.threads is not None and self.threads.at_work()
        judgement = judge(first, fixed, fixed.expected, self.task, self.interpreted)
        findings = (*((make("returned_too_soon"),) if late else ()), *judgement.findings)
        judgement = replace(judgement, findings=()) if judgement.problem else self._manners(first, fixed)
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

    def _manners(self, call: GuardedCall, material: CaseInputs) -> CheckResult:
        return CheckResult(touched(call, material, self.task) or verdicts.also_refused(call, material))

    def _draw(self, function: Callable[..., Any], fixed: CaseInputs, material: CaseInputs) -> CheckResult:
        call = GuardedCall.of(function, material, self.task, fixed)
        if call.breach is None and not verdicts.can_be_judged(material):  # then only the borders can be checked
            return CheckResult()
        judgement = judge(call, material, fixed.expected, self.task, self.interpreted)
        if judgement.problem is None or judgement.findings or verdicts.reference_holds(material, fixed):
            return judgement
        return CheckResult()

    def _proves(self, material: CaseInputs, fixed: CaseInputs) -> bool:
        """Whether a source that is right for these values is right."""
        return verdicts.can_be_judged(material) and verdicts.reference_holds(material, fixed)


def _same(first: Outputs, second: Outputs) -> bool:
    return len(first) == len(second) and all(
        one is None or (other is not None and tensor_layout.same_bits(one.contiguous(), other.contiguous()))
        for one, other in zip(first.values(), second.values(), strict=True)
    )
