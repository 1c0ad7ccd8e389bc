"""Memory blocks that preserve the strides, gaps and alignment of a tensor, with optional borders around it.

`clone()` and `empty_like` lose the strides of sliced tensors, and a fresh allocation loses their alignment, which
decides which vector loads a kernel may use. Copies here cover the whole span of a tensor, from its first to its last
element, so sliced, expanded and overlapping tensors keep their layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

ALIGNMENT = 128
"""Addresses are preserved modulo this; no load is wider."""


@dataclass(frozen=True)
class Block:
    """A tensor inside a larger piece of raw memory."""

    tensor: torch.Tensor
    raw: torch.Tensor
    """The whole block as bytes, including borders."""
    start: int
    """Offset of the tensor's span in `raw`."""
    nbytes: int

    @property
    def before(self) -> torch.Tensor:
        return self.raw[: self.start]

    @property
    def inside(self) -> torch.Tensor:
        return self.raw[self.start : self.start + self.nbytes]

    @property
    def after(self) -> torch.Tensor:
        return self.raw[self.start + self.nbytes :]


def span(size: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last one that the layout reaches."""
    if any(length == 0 for length in size):
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))


def span_bytes(tensor: torch.Tensor) -> int:
    return span(tensor.shape, tensor.stride()) * tensor.element_size()


def moved_bytes(tensor: torch.Tensor) -> int:
    """What a call must read of it: a gap between rows need not be read, and an expanded element is read once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return min(span_bytes(tensor), math.prod(sizes) * tensor.itemsize)


def plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is ordinary strided memory on the CPU or a GPU."""
    return (
        tensor.layout == torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_quantized
    )


def own_methods(tensor: torch.Tensor) -> list[str]:
    """Attributes of this tensor alone that would be used in place of torch's."""
    return sorted(name for name in vars(tensor) if hasattr(torch.Tensor, name))


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's whole span, including gaps, as one row."""
    return torch.as_strided(tensor.detach(), (span(tensor.shape, tensor.stride()),), (1,), tensor.storage_offset())


def carve(raw: torch.Tensor, start: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor with the layout of `like` on raw bytes. Not a view, so writing to it involves no other tensor."""
    tensor = torch.empty(0, dtype=like.dtype, device=raw.device)
    offset = (raw.storage_offset() + start) // like.element_size()
    return tensor.set_(raw.untyped_storage(), offset, like.shape, like.stride())


def aligned_start(raw_address: int, at_least: int, like: torch.Tensor) -> int:
    """The first offset from `at_least` on whose address is aligned like that of `like`."""
    wanted = like.data_ptr() % ALIGNMENT
    if wanted % like.element_size():
        wanted = 0
    return at_least + (wanted - raw_address - at_least) % ALIGNMENT


def block(like: torch.Tensor, border: int = 0) -> Block:
    """An uninitialized block for a tensor with the layout of `like`."""
    nbytes = span_bytes(like)
    raw = torch.empty(nbytes + 2 * border + ALIGNMENT, dtype=torch.uint8, device=like.device)
    start = aligned_start(raw.data_ptr(), border, like)
    raw = raw[: start + nbytes + border]
    return Block(carve(raw, start, like), raw, start, nbytes)


def fill(made: Block, like: torch.Tensor) -> None:
    """Copies values, including gaps, into a block of the same layout."""
    if made.nbytes:
        flat(made.tensor).copy_(flat(like))


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and alignment."""
    if not plain(tensor):
        return tensor.detach().clone()
    made = block(tensor)
    fill(made, tensor)
    return made.tensor.requires_grad_(tensor.requires_grad) if tensor.requires_grad else made.tensor


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors contain the same bits, including gaps if the layouts match; NaN equals itself."""
    if not plain(one) or not plain(other):
        return bool(torch.equal(one, other))
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.stride() != other.stride():
        one, other = one.contiguous(), other.contiguous()
    if not span_bytes(one):
        return True
    return bool(torch.equal(flat(one).view(torch.uint8), flat(other).view(torch.uint8)))
