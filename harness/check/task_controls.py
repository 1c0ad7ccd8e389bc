"""Validates the task: the reference must pass, and zeros, a constant and a shuffled result must fail.

Runs once per task hash on the smallest case of each variant. A tolerance that accepts zeros would accept anything.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.check import compare
from harness.inputs.cache import RunCache
from harness.inputs.reference import Draw, Outputs, Reference
from harness.load.failure import BadTask
from harness.shared.task import Case


def smallest_cases(cases: tuple[Case, ...]) -> list[Case]:
    """One case of each variant, by the product of its sizes.

    Uses grid points only if a variant has nothing else: they are edge cases, such as a softmax over one column, where a
    constant is the correct result.
    """
    found: dict[str, Case] = {}
    for case in sorted(cases, key=lambda case: (case.kind == "check", case.size)):
        found.setdefault(case.variant, case)
    return list(found.values())


def run_controls(reference: Reference, cache: RunCache, device: str, beat: Callable[[Case], None]) -> None:
    """Raises BadTask if the task rejects correct results or accepts wrong ones."""
    task = reference.task
    for case in smallest_cases(task.cases):
        beat(case)
        material = cache.material(reference, case, Draw(), device)
        right = compare.compare(material.expected, material.truth, task)
        if right.problem is not None:
            raise BadTask(f"[tolerance] is too tight for case {case.id}: the reference fails ({right.problem})")
        for name, wrong, outputs in _wrong_answers(material.expected):
            if compare.compare(outputs, material.truth, task).problem is None:
                raise BadTask(f"[tolerance] is too loose for case {case.id}: {wrong} pass as {name}; tighten it")


def _wrong_answers(expected: Outputs) -> list[tuple[str, str, Outputs]]:
    answers = []
    for name, value in expected.items():
        if value is None or not value.numel():
            continue
        for wrong, tensor in _wrong(value):
            answers.append((name, wrong, {**expected, name: tensor}))
    return answers


def _wrong(value: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    wide = value.to(torch.float64) if not value.is_complex() else value
    constant = torch.full_like(wide, wide.mean().item()).to(value.dtype)
    order = torch.randperm(value.numel(), generator=torch.Generator().manual_seed(0)).to(value.device)
    shuffled = value.reshape(-1)[order].reshape(value.shape)
    wrong = [("zeros", torch.zeros_like(value))]
    if not torch.equal(value.reshape(-1), value.reshape(-1)[:1].expand(value.numel())):
        wrong += [("constant values", constant), ("shuffled values", shuffled)]
    return wrong
