"""Whether outputs are correct: type, shape, dtype, layout, then every element against truth.

`compare` judges everything: candidate, baseline, and the wrong answers that a task must reject. The output dtype
selects the tolerance. If truth is finite, the output must be finite; if truth, rounded to the output's dtype, is
infinite or NaN, the output must be the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.check import guard
from harness.inputs import tensor_layout
from harness.inputs.reference import Outputs
from harness.shared import format as fmt
from harness.shared.results import OutputError, Verdict
from harness.shared.task import Task, Tolerance

CHUNK = 1 << 20
"""Elements compared at a time: small enough for the cache, and a bound on the float64 copies."""
GPU_CHUNK = 1 << 25
"""On a GPU every chunk costs two synchronizations, so a chunk may take a gigabyte or two of copies."""
EXACT = Tolerance(0.0, 0.0)
MOST_NAMED = 3


def form(outputs: Outputs, expected: Outputs, layout: str) -> str | None:
    """What is wrong with the form of the outputs, before looking at any element."""
    if len(outputs) != len(expected):
        return f"{fmt.plural(len(outputs), 'output')}, expected {len(expected)}"
    for (name, got), wanted in zip(outputs.items(), expected.values(), strict=True):
        problem = _form(name, got, wanted, layout)
        if problem:
            return problem
    return None


def _form(name: str, got: torch.Tensor | None, wanted: torch.Tensor | None, layout: str) -> str | None:
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
    if got.dtype != wanted.dtype:
        return f"{name} is {_short(got.dtype)}, expected {_short(wanted.dtype)}"
    if got.device != wanted.device:
        return f"{name} is on {got.device}, expected {wanted.device}"
    if layout == "reference" and _strides(got) != _strides(wanted):
        return f"{name} has strides {list(got.stride())}, expected {list(wanted.stride())} (layout in task.toml)"
    return None


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The meaningful strides: not those of empty tensors or dimensions of length one."""
    if not tensor.numel():
        return ()
    return tuple(step for length, step in zip(tensor.shape, tensor.stride(), strict=True) if length != 1)


def compare(outputs: Outputs, truth: Outputs, task: Task, fresh: bool = False) -> Verdict:
    """All outputs against truth; `fresh` if they came from guarded memory, where the sentinel can be recognized."""
    errors: dict[str, OutputError] = {}
    ratios: dict[str, float] = {}
    if len(outputs) != len(truth):
        return Verdict(f"{fmt.plural(len(outputs), 'output')}, but truth has {len(truth)}")
    for (name, got), wanted in zip(outputs.items(), truth.values(), strict=True):
        if got is None or wanted is None:
            continue
        if got.shape != wanted.shape:
            return Verdict(f"{name} has shape {list(got.shape)}, but truth has shape {list(wanted.shape)}")
        allowed = task.tolerance.get(_short(got.dtype), EXACT)
        element = _worst(got.detach(), wanted.detach(), allowed)
        if element is not None:
            errors[name], ratios[name] = element.error(name, got, wanted, allowed), element.ratio
    several = tuple(errors.values()) if len(errors) > 1 else ()
    wrong = next((name for name in errors if ratios[name] > 1), None)
    if wrong is not None:
        got = outputs[wrong]
        assert got is not None
        return Verdict(_sentence(wrong, got, errors[wrong], fresh), errors[wrong], several)
    if not errors:
        return Verdict()
    nearest = errors[max(ratios, key=lambda name: ratios[name])]
    largest = max(error.max or 0.0 for error in errors.values())
    return Verdict(None, OutputError(**{**nearest.__dict__, "max": largest}), several)


@dataclass(frozen=True)
class _Element:
    """The element closest to exceeding the tolerance."""

    place: int
    ratio: float
    """Error divided by the allowed error; infinite if a value that should be finite is not."""
    largest: float
    """Largest finite error anywhere."""

    def error(self, name: str, got: torch.Tensor, wanted: torch.Tensor, allowed: Tolerance) -> OutputError:
        index = _index(self.place, got.shape)
        here, there = _number(got[index]), _number(wanted[index])
        bound = allowed.atol + allowed.rtol * abs(there)
        finite = math.isfinite(here) or not math.isfinite(there)
        return OutputError(self.largest if finite else None, None, bound, name, index, here, there)


def _worst(got: torch.Tensor, wanted: torch.Tensor, allowed: Tolerance) -> _Element | None:
    found: _Element | None = None
    largest = 0.0
    got, wanted = got.reshape(-1), wanted.reshape(-1)
    chunk = GPU_CHUNK if got.is_cuda else CHUNK
    for start in range(0, got.numel(), chunk):
        here, there = got[start : start + chunk], wanted[start : start + chunk]
        place, ratio, error = _worst_of_chunk(here, there, allowed)
        largest = max(largest, error)
        if found is None or ratio > found.ratio:
            found = _Element(start + place, ratio, error)
    return None if found is None else _Element(found.place, found.ratio, largest)


def _worst_of_chunk(got: torch.Tensor, wanted: torch.Tensor, allowed: Tolerance) -> tuple[int, float, float]:
    if not (got.is_floating_point() or got.is_complex() or allowed.atol or allowed.rtol):
        wrong = got != wanted.to(got.dtype)
        place = int(wrong.to(torch.uint8).argmax())
        largest = (got.double() - wanted.double()).abs().max().item()
        return place, math.inf if bool(wrong[place]) else 0.0, largest
    wide = torch.complex128 if got.is_complex() else torch.float64
    exact = wanted.to(wide)
    error = (got.to(wide) - exact).abs()
    ratio = error / (exact.abs() * allowed.rtol + allowed.atol).clamp_min_(1e-300)
    peaks: list[float] = torch.stack([ratio.max(), error.max()]).tolist()  # one synchronization
    if not all(map(math.isfinite, peaks)):  # rare, so handle infinities and NaN only here
        ratio, error = _with_infinities(got, wanted, ratio, error)
        peaks = torch.stack([ratio.max(), error.max()]).tolist()
    return int(ratio.argmax()), peaks[0], peaks[1]


def _with_infinities(
    got: torch.Tensor, wanted: torch.Tensor, ratio: torch.Tensor, error: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.complex128 if got.is_complex() else torch.float64  # the small formats have no comparison
    rounded, got = wanted.to(got.dtype).to(wide), got.to(wide)
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    strange = ~(got.isfinite() & rounded.isfinite())
    ratio = torch.where(strange, torch.where(same, 0.0, math.inf), ratio).nan_to_num_(nan=math.inf, posinf=math.inf)
    return ratio, torch.where(strange, 0.0, error)


def _sentence(name: str, got: torch.Tensor, error: OutputError, fresh: bool) -> str:
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
    return f"{name} differs{place}: got {error.got:.6g}, expected {error.expected:.6g} (allowed {error.bound:.2g})"


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


def one_ulp(dtype: torch.dtype, magnitude: float) -> float:
    if not dtype.is_floating_point:
        return 0.0
    return float(torch.finfo(dtype).eps) * abs(magnitude)


def _index(place: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for length in reversed(shape):
        index.append(place % length)
        place //= length
    return tuple(reversed(index))


def _number(value: torch.Tensor) -> float:
    number = value.item()
    return float(abs(number)) if isinstance(number, complex) else float(number)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
