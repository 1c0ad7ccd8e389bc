"""Bordered memory for checked calls: reveals writes outside a tensor and memory that was never written.

While a `Guard` is active, `torch.empty` and its variants return blocks filled with a sentinel (NaN for floats, a
pattern for integers) between borders of 4 KiB; zeros, ones and full keep their values and get borders too. Inputs are
copied into bordered blocks as well; borders of floating inputs are NaN, so an out-of-bounds read spoils the result.
Outputs and inputs have different border bytes, so a kernel that copies one element too many still changes the border.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from harness.inputs import tensor_layout
from harness.inputs.reference import Inputs, Outputs
from harness.private import torch_private
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import Finding

BORDER = 4096
NAN_BYTE = 0xFF
"""All bits set is NaN in every floating-point format of torch."""
PATTERN_BYTE = 0xA5
OUTPUT_BYTE = 0x5A

_aten = torch.ops.aten
_EMPTY = (
    "empty.memory_format empty_strided.default empty_like.default empty_permuted.default "
    "new_empty.default new_empty_strided.default"
)
_FILLED = (
    "zeros.default zeros_like.default new_zeros.default ones.default ones_like.default new_ones.default "
    "full.default full_like.default new_full.default"
)


def _overloads(names: str) -> frozenset[Any]:
    return frozenset(getattr(getattr(_aten, name.split(".")[0]), name.split(".")[1]) for name in names.split())


EMPTY, FILLED = _overloads(_EMPTY), _overloads(_FILLED)


def sentinel(dtype: torch.dtype) -> int:
    return NAN_BYTE if dtype.is_floating_point or dtype.is_complex else PATTERN_BYTE


@dataclass(frozen=True)
class Breach:
    """A write outside a tensor: the row's verdict, and the finding with its advice."""

    problem: str
    finding: Finding


@dataclass(frozen=True)
class _Guarded:
    block: tensor_layout.Block
    border: int
    """The byte that fills its borders."""
    name: str | None


class Guard(torch_private.CheckingMode):  # type: ignore[no-untyped-call]
    """Active during one checked call; afterwards `breach` reports out-of-bounds writes."""

    def __init__(self) -> None:
        super().__init__()
        self._guarded: list[_Guarded] = []

    def place(self, inputs: Inputs, mutates: tuple[str, ...], outputs: tuple[str, ...] = ()) -> Inputs:
        """Copies of the inputs in bordered blocks; destinations hold the sentinel."""
        return {name: self._place(name, value, name in mutates, name in outputs) for name, value in inputs.items()}

    def _place(self, name: str, value: Any, mutated: bool, destination: bool) -> Any:
        if not isinstance(value, torch.Tensor) or not tensor_layout.plain(value):
            return value
        # A mutated tensor is also an output: NaN borders would hide an f(NaN) written over them.
        border = OUTPUT_BYTE if mutated or destination else sentinel(value.dtype)
        made = self._guard(value, border, name)
        if destination:
            made.inside.fill_(sentinel(value.dtype))
            return made.tensor
        tensor_layout.fill(made, value)
        return made.tensor.requires_grad_(value.requires_grad) if value.requires_grad else made.tensor

    def _guard(self, like: torch.Tensor, border: int, name: str | None) -> tensor_layout.Block:
        made = tensor_layout.block(like, BORDER)
        made.before.fill_(border)
        made.after.fill_(border)
        self._guarded.append(_Guarded(made, border, name))
        return made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace not in ("aten", "prims", "prim"):
            return self._through(func, args, kwargs)
        result = func(*args, **kwargs)
        if func in EMPTY and _guardable(result):
            made = self._guard(result, OUTPUT_BYTE, None)
            made.inside.fill_(sentinel(result.dtype))
            return made.tensor
        if func in FILLED and _guardable(result):
            made = self._guard(result, OUTPUT_BYTE, None)
            tensor_layout.fill(made, result)
            return made.tensor
        return result

    def _through(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs a custom operator with the guard still active: its body allocates its outputs."""
        tensors = [arg for arg in [*args, *kwargs.values()] if isinstance(arg, torch.Tensor)]
        body = torch_private.own_kernel(func, any(arg.is_cuda for arg in tensors)) if tensors else None
        if body is None:
            return func(*args, **kwargs)
        with self:
            return body(*args, **kwargs)

    def breach(self, outputs: Outputs) -> Breach | None:
        """The first border that a call overwrote."""
        for guarded in self._guarded:
            made = guarded.block
            for border, before in ((made.before, True), (made.after, False)):
                touched = (border != guarded.border).nonzero()
                if len(touched):
                    return _breach(guarded, outputs, touched, before)
        return None


class GuardBesideDynamo(torch_private.OutOfDynamo, Guard):  # type: ignore[no-untyped-call]
    """The guard to use once torch.compile is loaded."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs)


def new_guard() -> Guard:
    return GuardBesideDynamo() if torch_private.dynamo_is_loaded() else Guard()


def _guardable(result: Any) -> bool:
    if type(result) is not torch.Tensor or not tensor_layout.plain(result):
        return False
    if result.is_cuda:  # a graph would refill the borders in every later call
        return not torch.cuda.is_current_stream_capturing()
    return not (result.is_cpu and _pinned(result))


def _pinned(tensor: torch.Tensor) -> bool:
    return torch.cuda.is_available() and tensor.is_pinned()


def _breach(guarded: _Guarded, outputs: Outputs, touched: torch.Tensor, before: bool) -> Breach:
    made = guarded.block
    item = made.tensor.element_size()
    place, end = int(touched[0]), int(touched[-1])
    elements = (made.start - place + item - 1) // item if before else end // item + 1
    side = "before the start" if before else "past the end"
    name = guarded.name or _output_name(made, outputs) or f"a temporary of shape {list(made.tensor.shape)}"
    values = {"elements": fmt.plural(elements, "element"), "side": side, "tensor": name}
    return Breach(findings.OUT_OF_BOUNDS.format(**values), findings.make("out_of_bounds_write", **values))


def _output_name(made: tensor_layout.Block, outputs: Outputs) -> str | None:
    storage = made.raw.untyped_storage().data_ptr()
    for name, value in outputs.items():
        if value is not None and value.untyped_storage().data_ptr() == storage:
            return name
    return None


def never_written(tensor: torch.Tensor) -> torch.Tensor | None:
    """Mask of elements that still contain the sentinel; None if there are none."""
    item = tensor.element_size()
    raw = tensor.detach().contiguous().view(-1).view(torch.uint8).view(-1, item) if tensor.numel() else None
    if raw is None:
        return None
    mask = (raw == sentinel(tensor.dtype)).all(dim=1).view(tensor.shape)
    return mask if bool(mask.any()) else None
