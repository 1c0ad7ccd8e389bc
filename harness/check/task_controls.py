"""Tries the task itself: the reference must pass, and zeros, a constant and a shuffled result should fail.

Runs once per task hash on the smallest case of each variant. A task that refuses its reference cannot be run. One that
lets a wrong answer pass can, with a finding on every run: some problems, such as a sum of many small terms, have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from harness.check import verdicts
from harness.inputs.cache import CaseInputs, RunCache
from harness.inputs.reference import Draw, Outputs, Reference
from harness.load.failure import BadTask
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import Finding
from harness.shared.task import Case

TOO_TIGHT = (
    "[tolerance] is too tight for case {case}: the reference fails ({problem}); loosen it, or, if it is meant against"
    ' the reference\'s own result, set judge = "reference"'
)
PIECE = 1 << 20
"""Values that are shuffled among themselves."""
REFUSED = "check() in reference.py refuses the reference's own result for case {case}: {problem}"


def smallest_cases(cases: tuple[Case, ...]) -> list[Case]:
    """One case of each variant, by the product of its sizes.

    Uses grid points only if a variant has nothing else: they are edge cases, such as a softmax over one column, where a
    constant is the correct result.
    """
    found: dict[str, Case] = {}
    for case in sorted(cases, key=lambda case: (case.kind == "check", case.size)):
        found.setdefault(case.variant, case)
    return list(found.values())


def run_controls(
    reference: Reference, cache: RunCache, device: str, beat: Callable[[Case], None]
) -> tuple[Finding, ...]:
    """Raises BadTask if the task rejects the reference; returns findings, one per output, if it accepts wrong ones."""
    found: dict[str, Finding] = {}
    for case in smallest_cases(reference.task.cases):
        beat(case)
        material = cache.material(reference, case, Draw(), device)
        right = verdicts.reference_verdict(material)
        if right.problem is not None:
            words = REFUSED if reference.task.judge == "check" else TOO_TIGHT
            raise BadTask(words.format(case=case.id, problem=right.problem))
        for name, passed in _passing(material).items():
            values = {"wrong": fmt.joined(passed), "output": name, "case": case.id}
            found.setdefault(name, findings.make("degenerate", **values))
    return tuple(found.values())


def _passing(material: CaseInputs) -> dict[str, list[str]]:
    """The wrong answers that pass, by output."""
    passing: dict[str, list[str]] = {}
    for name, wrong, tensor in _wrong_answers(material.expected):
        answer = _answer(material, name, tensor)
        if answer is not None and verdicts.verdict(answer, material, answer.outputs).problem is None:
            passing.setdefault(name, []).append(wrong)
    return passing


def _answer(material: CaseInputs, name: str, tensor: torch.Tensor) -> verdicts.Answer | None:
    """The reference's answer with another tensor as one output. A `check` gets what the reference returned, whatever
    its structure, so there the values are put in place; None if they cannot be."""
    if material.reference.task.judge != "check":
        return verdicts.Answer(None, material.inputs, {**material.expected, name: tensor})
    answer = verdicts.reference_answer(material)
    output = answer.outputs[name]
    try:
        with torch.no_grad():
            output.copy_(tensor)  # type: ignore[union-attr]
    except RuntimeError:  # such as an expanded tensor, whose elements share memory
        return None
    return answer


def _wrong_answers(expected: Outputs) -> Iterator[tuple[str, str, torch.Tensor]]:
    for name, value in expected.items():
        if value is not None and value.numel():
            yield from ((name, wrong, tensor) for wrong, tensor in _wrong(value.detach()))


def _wrong(value: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Wrong values for an output, computed in float64, because the small formats have no arithmetic. What equals the
    right ones is left out: zeros where they are all zero, a constant where they are all the same. One at a time,
    because an output may take a good part of the memory."""
    wide = value if value.is_complex() else value.to(torch.float64)
    row = wide.reshape(-1)
    made: dict[str, Callable[[], torch.Tensor]] = {"zeros": partial(torch.zeros_like, wide)}
    if not torch.equal(row, row[:1].expand(row.numel())):
        made["constant values"] = lambda: torch.full_like(wide, row.mean().item())
        made["shuffled values"] = lambda: _shuffled(row).reshape(wide.shape)
    for name, make in made.items():
        wrong = make().to(value.dtype)
        if not torch.equal(wrong.to(wide.dtype), wide):
            yield name, wrong


def _shuffled(row: torch.Tensor) -> torch.Tensor:
    """The same values in another order, the same one in every piece: a CPU takes 10 s to draw one for 10^9 values."""
    size = min(row.numel(), PIECE)
    whole = row.numel() // size * size
    order = torch.randperm(size, generator=torch.Generator().manual_seed(0)).to(row.device)
    return torch.cat([row[:whole].reshape(-1, size)[:, order].reshape(-1), row[whole:]])
