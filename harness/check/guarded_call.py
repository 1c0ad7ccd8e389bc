"""One checked call of a side, in guarded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.check import compare, verdicts
from harness.check.guard import Breach, new_guard
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import BadOutput, Outputs, named_outputs
from harness.shared.results import Finding, OutputError
from harness.shared.task import Task


@dataclass(frozen=True)
class GuardedCall(verdicts.Answer):
    """The outcome of a call. Exceptions from the call are not caught here."""

    breach: Breach | None = None
    problem: str | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], material: CaseInputs, task: Task, fixed: CaseInputs) -> GuardedCall:
        """Calls the function; what the reference returns for `fixed` says which returned values count."""
        guard, call = new_guard(), material.entry(function)
        placed = guard.place(material.inputs, task.mutates, task.outputs)
        with guard:
            result = call(**placed)
        if any(isinstance(value, torch.Tensor) and value.is_cuda for value in placed.values()):
            torch.cuda.synchronize()
        try:
            outputs = named_outputs(result, placed, task.judged, fixed.expected if task.judged else None)
        except BadOutput as problem:
            return cls(result, placed, {}, guard.breach({}), str(problem))
        return cls(result, placed, outputs, guard.breach(outputs))


@dataclass(frozen=True)
class CheckResult:
    problem: str | None = None
    error: OutputError | None = None
    errors: tuple[OutputError, ...] = ()
    """One per output, if there are several."""
    findings: tuple[Finding, ...] = ()
    exact: float | None = None
    """Share of the values that are bit for bit those of the reference, if they were compared with it."""


def judge(
    call: GuardedCall, material: CaseInputs, expected: Outputs, task: Task, is_interpreted: bool = False
) -> CheckResult:
    """Checks borders, form, then every element; `expected` provides the form."""
    if call.breach is not None:
        return CheckResult(call.breach.problem, findings=(call.breach.finding,))
    problem = _resized(call, material, task) or call.problem
    if problem:
        return CheckResult(problem)
    found = verdicts.verdict(call, material, expected, fresh=True, is_interpreted=is_interpreted)
    return CheckResult(found.problem, found.error, found.errors, found.notes)


def touched(call: GuardedCall, material: CaseInputs, task: Task) -> str | None:
    """What the call did to its inputs that it must not; None if nothing."""
    changed = compare.changed_inputs(material.inputs, call.inputs, task.written)
    if changed is not None:
        return wrote_to(changed)
    shared = compare.aliased(call.outputs, call.inputs) if not task.written else None
    if shared is not None and compare.aliased(material.expected, material.inputs) is None:
        return f"{shared[0]} shares memory with input {shared[1]!r}; return a new tensor"
    return None


def _resized(call: GuardedCall, material: CaseInputs, task: Task) -> str | None:
    """What a call did that changed the shape of an input: it could not be timed, so no check may wait for the rows."""
    for name, value in material.inputs.items():
        kept = call.inputs[name]
        if isinstance(value, torch.Tensor) and name not in task.written and kept.shape != value.shape:
            return wrote_to(name)
    return None


def wrote_to(name: str) -> str:
    return f"the call wrote to its input {name!r}, which is not listed in mutates"
