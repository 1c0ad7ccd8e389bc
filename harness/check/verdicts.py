"""The one place that decides whether an answer is right, by the task's `judge`.

`truth` compares every element with unrounded results, `reference` with the reference's own outputs, in its dtype;
`check` compares no element: form and the task's `check(axes, inputs, outputs)` decide. Under the first two a `check` is
one condition more, which the slow checks put to one call. Every caller judges through `verdict`: first calls, timed
calls, opponents, the controls of a task, and the judge of a confirmation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.check import compare, elements
from harness.inputs import structure
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import Inputs, Outputs, copies, named_outputs
from harness.load.failure import BadTask, describe
from harness.shared import findings
from harness.shared.results import Verdict
from harness.shared.task import Tolerance


@dataclass(frozen=True)
class Answer:
    """What a call gave: its return value, its inputs as it left them, and its outputs by name."""

    result: Any
    inputs: Inputs
    outputs: Outputs

    @classmethod
    def to(cls, material: CaseInputs, result: Any, inputs: Inputs, like: Outputs | None = None) -> Answer:
        """Raises BadOutput; `like` are the reference's outputs, which say whether a returned value counts."""
        result = structure.plain(result)  # as the judge gets it: it knows no class of a source
        return cls(result, inputs, named_outputs(result, inputs, material.reference.task.judged, like))


def verdict(
    answer: Answer, material: CaseInputs, like: Outputs, fresh: bool = False, is_interpreted: bool = False
) -> Verdict:
    """The verdict on a call with these inputs. `like` are outputs of the reference in their proper form; `fresh` if the
    outputs came from guarded memory; `is_interpreted` if Triton's interpreter made them."""
    task = material.reference.task
    problem = compare.form(answer.outputs, like, task)
    if problem is not None:
        return Verdict(problem)
    if task.judge == "check":
        return Verdict(_refused_by_check(answer, material))
    tolerances = task.tolerance_of(material.case)
    found = compare.compare(answer.outputs, _wanted(material), tolerances, like, fresh)
    if found.problem is None or not is_interpreted or not _has_bfloat16(like):
        return found
    again = compare.compare(answer.outputs, _wanted(material), _one_unit_more(tolerances), like, fresh)
    return found if again.problem is not None else replace(again, notes=(findings.make("interpreted_bf16"),))


def _wanted(material: CaseInputs) -> Outputs:
    return material.truth if material.reference.task.judge == "truth" else material.expected


def _has_bfloat16(outputs: Outputs) -> bool:
    return any(value is not None and value.dtype == torch.bfloat16 for value in outputs.values())


def _one_unit_more(tolerances: dict[str, Tolerance]) -> dict[str, Tolerance]:
    """The tolerance of bfloat16 with one unit in the last place more: the interpreter cuts off where a GPU rounds."""
    usual = tolerances.get("bfloat16", compare.EXACT)
    return {**tolerances, "bfloat16": replace(usual, rtol=usual.rtol + torch.finfo(torch.bfloat16).eps)}


def also_refused(answer: Answer, material: CaseInputs) -> str | None:
    """What a `check` that comes on top of the elements finds wrong."""
    reference = material.reference
    is_extra = reference.task.judge != "check" and reference.extra_check is not None
    return _refused_by_check(answer, material) if is_extra else None


def _refused_by_check(answer: Answer, material: CaseInputs) -> str | None:
    """What the task's `check` finds wrong. An error that it raises is the task's fault if the reference's own answer
    raises one too, otherwise that of the answer."""
    if material.reference.extra_check is None:
        raise BadTask('reference.py does not define check(axes, inputs, outputs), which judge = "check" calls')
    try:
        return _checked(answer, material)
    except BaseException as problem:
        said = describe(problem, material.reference.paths)
        try:
            _checked(reference_answer(material), material)
        except BaseException as again:
            fault = describe(again, material.reference.paths)
            where = f"check() in reference.py raised an error for case {material.case.id}"
            raise BadTask(f"{where}: {fault.message}", fault.where) from None
        return f"check() in reference.py raised an error for these outputs: {said.message}"


def _checked(answer: Answer, material: CaseInputs) -> str | None:
    """Runs the task's `check`, which returns rows of (name, error, bound)."""
    reference, axes = material.reference, dict(material.case.axes)
    outputs = answer.outputs if reference.task.judged else answer.result
    rows: Any = reference.extra_check(axes, answer.inputs, outputs)  # type: ignore[misc]
    for name, error, bound in [(str(name), float(error), float(bound)) for name, error, bound in rows]:
        if not error <= bound:
            return f"check {name!r}: error {error:.3g}, allowed {bound:.3g}"
    return None


def reference_answer(material: CaseInputs) -> Answer:
    """The reference's own answer, from one more call: `expected` has its outputs, not what it returned."""
    inputs = copies(material.inputs)
    return Answer.to(material, material.entry(material.reference.entry)(**inputs), inputs)


def reference_verdict(material: CaseInputs) -> Verdict:
    """The verdict on the reference itself."""
    if material.reference.task.judge == "check":
        return Verdict(_refused_by_check(reference_answer(material), material))
    return verdict(Answer(None, material.inputs, material.expected), material, material.expected)


def can_be_judged(material: CaseInputs) -> bool:
    """Whether the expected values are finite. If not, the draw is too much for the task."""
    return elements.are_finite(_wanted(material))


def reference_holds(material: CaseInputs, usual: CaseInputs) -> bool:
    """Whether a wrong answer for these values is wrong: values this wide may be too much for any source.

    Under `truth` and `check` the reference has to pass. Under `reference` it always does, so truth informs: where the
    reference misses it by more than the tolerance, though not for `usual` values, another order of sums may miss the
    reference by as much.
    """
    if material.reference.task.judge != "reference":
        return reference_verdict(material).problem is None
    return _is_near_truth(material) or not _is_near_truth(usual)


def _is_near_truth(material: CaseInputs) -> bool:
    """Also if there is no truth: without a `truth` in reference.py it takes an entry that computes in float64."""
    try:
        tolerances = material.reference.task.tolerance_of(material.case)
        return compare.compare(material.expected, material.truth, tolerances, material.expected).problem is None
    except (BadTask, torch.OutOfMemoryError):
        return True
