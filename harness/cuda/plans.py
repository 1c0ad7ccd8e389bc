"""What was worked out for arguments of one form is found again; outputs cost no more than the allocator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import torch_internals

MOST_KEYS, MOST_FORMS = 4096, 8
"""Lengths that never come back must not fill the memory; the forms that have a key in common are found by trying."""


class Plans(dict[Any, list[tuple[Any, ...]]]):
    """By a key of the caller's, plans for the forms of tensors that were seen with it: `(same_form, *plan)` each."""

    def keep(self, key: Any, tensors: Sequence[torch.Tensor], plan: Sequence[Any]) -> None:
        if any(x.is_neg() for x in tensors):
            raise ValueError("a tensor is the negative of what its memory holds; pass its resolve_neg() instead")
        if len(self) >= MOST_KEYS:
            self.clear()
        alike = self.setdefault(key, [])
        del alike[: max(0, len(alike) + 1 - MOST_FORMS)]
        alike.append((same_form_as(*tensors), *plan))


def same_form_as(*tensors: torch.Tensor) -> Callable[..., bool]:
    """A function of as many tensors: whether each has the type, dtype, device, shape and strides of its example.

    Torch has one for it, with which torch.compile guards its graphs; it also tells tensors with gradients and calls in
    inference mode from others, which only costs a plan more. Beside an H200 it saves 0.7 us for six tensors.
    """
    guards = torch_internals.tensor_guards()
    shapes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    with contextlib.suppress(TypeError):  # a torch that has none, or another one
        same: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
        if same(*tensors):  # it is not where one tensor is given twice
            return same
    forms = [_form(x) for x in tensors]
    return lambda *others: [_form(x) for x in others] == forms


def _form(x: torch.Tensor) -> tuple[Any, ...]:
    return type(x), x.dtype, x.device, x.shape, x.stride(), x.is_neg()


def outputs_like(
    x: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format
) -> Callable[[], torch.Tensor]:
    """A function that allocates on the current device what `torch.empty_like` would, a plain tensor in any case, by
    torch.compile's own way.

    While a mode looks on at what torch dispatches, it is torch's public function, so that the mode sees the output.
    """
    about = torch.empty_like(x, device="meta", memory_format=memory_format)
    size, stride, dtype, device = tuple(about.shape), about.stride(), x.dtype, x.device
    faster = torch_internals.allocator()
    if faster is None or not x.is_cuda:
        return lambda: torch.empty_strided(size, stride, dtype=dtype, device=device)
    allocated, onlookers = faster

    def output() -> torch.Tensor:
        if onlookers():
            return torch.empty_strided(size, stride, dtype=dtype, device=device)
        return allocated(size, stride, dtype)

    return output
