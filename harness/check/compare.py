"""Whether outputs are correct: type, shape, dtype, layout, then every element against what is expected.

`compare` judges everything: candidate, baseline, and the wrong answers that a task must reject; verdicts.py says what
is expected. If that is finite, the output must be finite; if it is infinite or NaN once rounded to the output's dtype,
the output must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from harness.check import elements, guard
from harness.inputs import tensor_layout
from harness.inputs.reference import Outputs
from harness.shared import format as fmt
from harness.shared.results import OutputError, Verdict
from harness.shared.task import Task, Tolerance

EXACT = Tolerance(0.0, 0.0)
MOST_NAMED = 3


def form(outputs: Outputs, expected: Outputs, task: Task) -> str | None:
    """What is wrong with the form of the outputs, before looking at any element."""
    if len(outputs) != len(expected):
        return f"{fmt.plural(len(outputs), 'output')}, expected {len(expected)}"
    for (name, got), wanted in zip(outputs.items(), expected.values(), strict=True):
        problem = _form(name, got, wanted, task)
        if problem:
            return problem
    return None


def _form(name: str, got: torch.Tensor | None, wanted: torch.Tensor | None, task: Task) -> str | None:
    if got is None or wanted is None:
        if got is wanted:
            return None
        return f"{name} is None, expected a tensor" if got is None else f"{name} is a tensor, expected None"
    if type(got) is not torch.Tensor:
        return f"{name} is of type {type(got).__name__}, not a plain torch.Tensor"
    own = tensor_layout.own_methods(got)
    if own:  # they would be called in place of torch's when it is compared
        return f"{name} has its own {fmt.joined(own[:MOST_NAMED])}, not torch.Tensor's"
    if got.shape != wanted.shape:
        return f"{name} has shape {list(got.shape)}, expected {list(wanted.shape)}"
    if task.dtype == "reference" and got.dtype != wanted.dtype:
        return f"{name} is {short(got.dtype)}, expected {short(wanted.dtype)}"
    if got.device != wanted.device:
        return f"{name} is on {got.device}, expected {wanted.device}"
    if task.layout == "reference" and _strides(got) != _strides(wanted):
        return f"{name} has strides {list(got.stride())}, expected {list(wanted.stride())} (layout in task.toml)"
    return None


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The meaningful strides: not those of empty tensors or dimensions of length one."""
    if not tensor.numel():
        return ()
    return tuple(step for length, step in zip(tensor.shape, tensor.stride(), strict=True) if length != 1)


def compare(
    outputs: Outputs,
    wanted: Outputs,
    tolerances: Mapping[str, Tolerance],
    like: Outputs | None = None,
    fresh: bool = False,
) -> Verdict:
    """All outputs against what is wanted; `fresh` if they came from guarded memory, where the sentinel can be
    recognized. The dtypes of `like`, by default those of the outputs, select the tolerances."""
    found: dict[str, _Compared] = {}
    if len(outputs) != len(wanted):
        return Verdict(f"{fmt.plural(len(outputs), 'output')}, but truth has {len(wanted)}")
    for (name, got), there, other in zip(outputs.items(), wanted.values(), (like or outputs).values(), strict=True):
        if got is None or there is None:
            continue
        if got.shape != there.shape:
            return Verdict(f"{name} has shape {list(got.shape)}, but truth has shape {list(there.shape)}")
        dtype = got.dtype if other is None else other.dtype
        allowed = tolerances.get(short(dtype), EXACT)
        distance = elements.distance(got.detach(), there.detach(), allowed, _must_equal(got, dtype, allowed))
        if distance is not None:
            found[name] = _Compared(got, allowed, distance, _error(name, got, there, allowed, distance))
    several = tuple(item.error for item in found.values()) if len(found) > 1 else ()
    wrong = next((item for item in found.values() if item.distance.is_wrong(item.allowed)), None)
    if wrong is not None:
        return Verdict(_sentence(wrong, fresh), wrong.error, several)
    if not found:
        return Verdict()
    nearest = max(found.values(), key=lambda item: item.distance.ratio)
    largest = max(item.error.max or 0.0 for item in found.values())
    return Verdict(None, replace(nearest.error, max=largest), several)


@dataclass(frozen=True)
class _Compared:
    """One output, and its worst element."""

    got: torch.Tensor
    allowed: Tolerance
    distance: elements.Distance
    error: OutputError


def _must_equal(got: torch.Tensor, dtype: torch.dtype, allowed: Tolerance) -> bool:
    is_integer = not (got.is_floating_point() or got.is_complex())
    return is_integer and got.dtype == dtype and not (allowed.atol or allowed.rtol)


def _error(
    name: str, got: torch.Tensor, wanted: torch.Tensor, allowed: Tolerance, distance: elements.Distance
) -> OutputError:
    index = _index(distance.place, got.shape)
    here, there = _number(got[index]), _number(wanted[index])
    past = distance.ratio < math.inf and distance.is_past_cap(allowed)
    bound = allowed.cap if past else allowed.atol + allowed.rtol * abs(there)
    finite = math.isfinite(here) or not math.isfinite(there)
    return OutputError(distance.largest if finite else None, None, bound, name, index, here, there)


def _sentence(wrong: _Compared, fresh: bool) -> str:
    got, error, allowed = wrong.got, wrong.error, wrong.allowed
    name = error.output
    untouched = guard.never_written(got) if fresh else None
    if untouched is not None:
        if bool(untouched.all()):
            return f"{name} was never written"
        first = int(untouched.reshape(-1).to(torch.uint8).argmax())
        return f"{name} was not written at {list(_index(first, got.shape))}"
    if error.index is None or error.got is None or error.expected is None:
        return f"{name} differs"
    place = f" at {list(error.index)}" if error.index else ""
    if not math.isfinite(error.got) and math.isfinite(error.expected):
        return f"{name} is {error.got:g}{place}, expected {error.expected:.6g}"
    if error.got == error.expected or abs(error.got - error.expected) <= (error.bound or 0.0) < math.inf:  # by now
        return (
            f"{name} changed{place} while it was being checked; is work still running in a thread or on another stream?"
        )
    values = f"got {error.got:.6g}, expected {error.expected:.6g}"
    if wrong.distance.ratio == math.inf or allowed.matched == 1 or wrong.distance.is_past_cap(allowed):
        return f"{name} differs{place}: {values} (allowed {error.bound:.2g})"
    reached, required = fmt.share(wrong.distance.share), f"{fmt.plain(allowed.matched * 100)}%"
    return f"{name}: {reached} of the values are within the tolerance, {required} must be; the worst{place}: {values}"


def changed_inputs(before: dict[str, object], after: dict[str, object], mutates: tuple[str, ...]) -> str | None:
    """The first input that a call wrote to although the task does not declare it mutated."""
    for name, value in before.items():
        kept = after[name]
        if name in mutates or not isinstance(value, torch.Tensor) or not isinstance(kept, torch.Tensor):
            continue
        if not tensor_layout.same_bits(value, kept):
            return name
    return None


def aliased(outputs: Outputs, inputs: dict[str, object]) -> tuple[str, str] | None:
    """An output and the input whose storage it shares."""
    storages = {
        value.untyped_storage().data_ptr(): name
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.numel() and tensor_layout.plain(value)
    }
    for name, value in outputs.items():
        if value is not None and value.numel() and value.untyped_storage().data_ptr() in storages:
            return name, storages[value.untyped_storage().data_ptr()]
    return None


def shared(first: Outputs, second: Outputs) -> bool:
    """Whether two results, both alive, share memory."""
    held = {value.untyped_storage().data_ptr() for value in first.values() if value is not None and value.numel()}
    return any(
        value is not None and value.numel() and value.untyped_storage().data_ptr() in held for value in second.values()
    )


def _index(place: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for length in reversed(shape):
        index.append(place % length)
        place //= length
    return tuple(reversed(index))


def _number(value: torch.Tensor) -> float:
    number = value.item()
    return float(abs(number)) if isinstance(number, complex) else float(number)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
