"""Judges calls by their inputs' seed and lot: the same inputs are made again here, and the exact results from them."""

from __future__ import annotations

from typing import Any

import torch

from harness.check import verdicts
from harness.device import environment
from harness.inputs import structure, variation
from harness.inputs.cache import CaseInputs, RunCache
from harness.inputs.reference import BadOutput, Draw
from harness.shared.run_request import RunRequest
from harness.shared.task import Case

TENSOR = "tensor"
"""In the form of a result; a string with a space in it is the type of something else."""


NOT_SOUND = "the judge took nonsense for right, so something has changed its memory; start kernbench again"


class Judging:
    """One confirmation."""

    def __init__(self, request: RunRequest, device: str) -> None:
        self._request, self._task, self._device = request, request.task, device
        self._reference = RunCache().reference(request.task, request.source, request.build)
        self._masters: tuple[str, dict[int, CaseInputs], frozenset[str]] = "", {}, frozenset()
        """Of the last case: its inputs by seed, and the names of those that vary."""
        self._calls = dict.fromkeys(request.cases, 0)
        self._problems: dict[str, str | None] = dict.fromkeys(request.cases)
        self._lots: set[tuple[str, int, int]] = set()

    def take(self, header: dict[str, Any], tensors: list[torch.Tensor]) -> None:
        """A call: its case, the seed and lot of its inputs, and how its tensors make up its result."""
        case = self._task.case(str(header["case"]))
        self._calls[case.id] += 1
        if self._problems[case.id] is None:
            self._problems[case.id] = self._problem(case, header, tensors)

    def results(self) -> dict[str, tuple[int, str | None]]:
        """By case: how many calls were judged, and what was wrong with the first that was wrong."""
        found = {case: (calls, self._problems[case]) for case, calls in self._calls.items()}
        return found if self._refuses_nonsense() else {case: (calls, NOT_SOUND) for case, (calls, _) in found.items()}

    def _refuses_nonsense(self) -> bool:
        """Whether this process still tells right from wrong: another one of the same user could change its memory."""
        name, masters, _names = self._masters
        if not name or self._task.judge == "check":
            return True
        master = next(iter(masters.values()))
        wrong = {name: None if value is None else _nonsense(value) for name, value in master.expected.items()}
        if not any(value is not None and value.numel() for value in wrong.values()):
            return True
        answer = verdicts.Answer(None, master.inputs, wrong)
        return verdicts.verdict(answer, master, master.expected).problem is not None

    def _problem(self, case: Case, header: dict[str, Any], tensors: list[torch.Tensor]) -> str | None:
        seed, lot = int(header["seed"]), int(header["lot"])
        if seed not in seeds(self._request):
            return "a call with inputs that were not asked for was handed over"
        if self._device == "cpu" and (case.id, seed, lot) in self._lots:  # on a GPU the calls of a block have one lot
            return "two calls with the same inputs were handed over"
        self._lots.add((case.id, seed, lot))
        _case, masters, names = self._known(case)
        master = masters[seed]
        values = variation.varied(master.inputs, lot, names)
        material = CaseInputs(self._reference, case, master.draw, self._device, values)
        mutated = dict(zip(header["mutated"], tensors, strict=False))
        try:
            result = rebuilt(header["result"], tensors[len(mutated) :])
            answer = verdicts.Answer.to(material, result, {**material.inputs, **mutated}, master.expected)
        except BadOutput as problem:
            return str(problem)
        wrong = verdicts.verdict(answer, material, master.expected).problem
        return wrong if wrong is not None and verdicts.reference_holds(material, master) else None

    def _known(self, case: Case) -> tuple[str, dict[int, CaseInputs], frozenset[str]]:
        if self._masters[0] != case.id:
            self._masters = "", {}, frozenset()
            environment.give_back_gpu_memory()
            draws = {seed: Draw(seed) for seed in seeds(self._request)}
            masters = {seed: CaseInputs(self._reference, case, draw, self._device) for seed, draw in draws.items()}
            names = variation.free_names([master.inputs for master in masters.values()], self._task.outputs)
            self._masters = case.id, masters, names
        return self._masters


def _nonsense(value: torch.Tensor) -> torch.Tensor:
    """Far from the value in every element."""
    if value.dtype == torch.bool:
        return ~value
    if not (value.is_floating_point() or value.is_complex()):
        return value + 1
    return ((value.double() if not value.is_complex() else value) * 100 + 100).to(value.dtype)


def seeds(request: RunRequest) -> tuple[int, int]:
    """Of the inputs of a confirmation."""
    return request.seed, request.seed + 1


def described(result: Any) -> tuple[Any, list[torch.Tensor]]:
    """A result without its tensors, and those in order."""
    tensors: list[torch.Tensor] = []

    def form(value: Any) -> Any:
        if type(value) is torch.Tensor:
            tensors.append(value)
            return TENSOR
        is_number = value is None or type(value) in (bool, int, float)
        return value if is_number else f"a {type(value).__name__}"

    return structure.plain(result, form), tensors


def rebuilt(form: Any, tensors: list[torch.Tensor]) -> Any:
    """The result that `described` took apart."""
    left = iter(tensors)

    def build(part: Any) -> Any:
        if isinstance(part, str) and part != TENSOR:
            raise BadOutput(f"it returned {part}, not a tensor")
        return next(left) if part == TENSOR else part

    return structure.plain(form, build)
