"""Other values for the same inputs: in every floating tensor, strips get values from another place in it.

Timed calls get values that no earlier call has seen, so a result that was kept from one of them is wrong for the next.
The values depend on the master and on a number, the lot, and on nothing else: a call is judged later with inputs made
again from these two. Values from the same tensor are as likely as its own.

Where values depend on each other, a source may rely on that. So integers stay, which may be places in other tensors,
and tensors that are symmetric, or in which a tenth of the values are zero or infinite, such as masks and triangles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from harness.inputs import tensor_layout
from harness.inputs.reference import Inputs, copies

CHUNK = 512
"""Elements with one strip among them: few rows are so short that one has none, and could be kept from another call."""
BY_HAND = 16
"""Up to so many strips, the C library is faster than torch on a CPU."""
SHARE = 64
"""One of so many elements is in a strip."""
LOOKED_AT, STRUCTURED = 1 << 14, 0.1
"""Values that are looked at for zeros and infinities, and their share that means something."""
OUTLIERS = 8
"""In pairs of neighbors that differ: what clamps wide values takes them for equal."""
LOTS = 1 << 48
"""Lot 0 means the master's own values."""
_SPREAD, _STEP = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
"""Odd numbers that scatter lots over 64 bits."""
_move = ctypes.memmove
"""Bound before any source could replace it."""


class Strips:
    """The strips of one tensor that is a copy of another, its master."""

    def __init__(self, target: torch.Tensor, master: torch.Tensor, number: int) -> None:
        self._target, self._master = _in_rows(target), _in_rows(master)
        length = self._target.shape[-1]
        self._width = max(1, length // SHARE)
        self._places, self._salt = length - self._width + 1, number * _STEP
        self._raw: tuple[range, int, int, int] | None = None
        """On a CPU: the offsets of the rows, the two addresses, and the bytes of an element."""
        if target.is_cpu and _is_dense(target) and self._target.shape[0] <= BY_HAND:
            size, rows = self._target.element_size(), self._target.shape[0]
            offsets = range(0, rows * length * size, length * size)
            self._raw = offsets, self._target.data_ptr(), self._master.data_ptr(), size

    def put(self, lot: int) -> None:
        """Puts the values of a lot into the master's."""
        if lot and self._places > 1:
            self._copy(*self._chosen(lot))

    def undo(self, lot: int) -> None:
        if lot and self._places > 1:
            place, _other = self._chosen(lot)
            self._copy(place, place)

    def _copy(self, place: int, other: int) -> None:
        """The values at another place of the master; on a CPU by the C library, because torch takes 20 us per copy."""
        if self._raw is None:
            self._target.narrow(-1, place, self._width).copy_(self._master.narrow(-1, other, self._width))
            return
        offsets, target, master, size = self._raw
        target, master, count = target + place * size, master + other * size, self._width * size
        for offset in offsets:
            _move(target + offset, master + offset, count)

    def _chosen(self, lot: int) -> tuple[int, int]:
        """The strip's place, and that of its values."""
        mixed = (lot * _SPREAD + self._salt) >> 8 & (LOTS - 1)
        place, step = mixed % self._places, 1 + (mixed >> 24) % (self._places - 1)
        return place, (place + step) % self._places


def with_outliers(master: Inputs, names: frozenset[str], seed: int, factor: float) -> Inputs:
    """A copy in which a few values of these inputs are much larger: right for them means right for any mixture."""
    made, generator = copies(master), torch.Generator().manual_seed(seed)
    for name in sorted(names):
        flat = made[name].detach().view(-1) if made[name].is_contiguous() else None
        if flat is not None:
            places = torch.randint(0, flat.numel() - 1, (OUTLIERS // 2,), generator=generator).to(flat.device)
            signs = torch.randint(0, 2, (OUTLIERS // 2,), generator=generator).to(flat.device) * 2.0 - 1.0
            wide = signs * flat.to(torch.float32).abs().max() * factor
            flat[places], flat[places + 1] = wide.to(flat.dtype), (0.75 * wide).to(flat.dtype)
    return made


def free_names(masters: Sequence[Inputs], but: tuple[str, ...] = ()) -> frozenset[str]:
    """The inputs whose values may vary, in every master: memory may get the values of another."""
    return frozenset.intersection(*map(_free_names, masters)) - {*but}


def _free_names(master: Inputs) -> frozenset[str]:
    return frozenset(
        name for name, value in master.items() if isinstance(value, torch.Tensor) and _may_vary(value.detach())
    )


def strips(inputs: Inputs, master: Inputs, names: frozenset[str]) -> dict[str, Strips]:
    """Of the inputs with these names; `inputs` are copies of the master's in the same layout."""
    return {name: Strips(inputs[name], master[name], number) for number, name in enumerate(sorted(names))}


def varied(master: Inputs, lot: int, names: frozenset[str]) -> Inputs:
    """A copy of the master with the values of a lot, in the inputs with these names."""
    made = copies(master)
    for strip in strips(made, master, names).values():
        strip.put(lot)
    return made


def _may_vary(tensor: torch.Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor_layout.plain(tensor):
        return False
    return tensor.numel() > 1 and not _overlaps_itself(tensor) and not _has_structure(tensor)


def _has_structure(tensor: torch.Tensor) -> bool:
    some = tensor.reshape(-1)[:: max(1, tensor.numel() // LOOKED_AT)]
    some = some if some.is_complex() else some.to(torch.float32)  # the small formats have no comparison
    if float(((some == 0) | some.isinf()).to(torch.float32).mean()) >= STRUCTURED:
        return True
    is_square = tensor.ndim > 1 and tensor.shape[-1] == tensor.shape[-2] > 1
    if is_square and tensor.is_floating_point() and tensor.element_size() == 1:
        tensor = tensor.to(torch.float32)
    return is_square and bool(torch.equal(tensor, tensor.mT))


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two of its elements may have one address: where a step is not beyond all that the smaller steps reach."""
    reached = 0
    for step, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1 and step <= reached:
            return True
        reached += (length - 1) * step
    return False


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor_layout.span(tensor.shape, tensor.stride()) == tensor.numel()


def _in_rows(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor as rows of about CHUNK elements; one with gaps, which may hold anything, as it is."""
    if not _is_dense(tensor):
        return tensor.detach()
    rows = max(1, tensor.numel() // CHUNK)
    length = tensor.numel() // rows
    return tensor_layout.flat(tensor)[: rows * length].view(rows, length)
