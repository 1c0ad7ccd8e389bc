"""How far the elements of an output are from the expected ones, and how many are the same bit for bit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.inputs import tensor_layout
from harness.inputs.reference import Outputs
from harness.shared.task import Tolerance

CHUNK = 1 << 20
"""Elements compared at a time: small enough for the cache, and a bound on the float64 copies."""
GPU_CHUNK = 1 << 25
"""On a GPU every chunk costs two synchronizations, so a chunk may take a gigabyte or two of copies."""
FAR = 1e308
"""Most that a finite error can be off; only what should be finite and is not, or the reverse, is infinitely far off."""
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers by their size in bytes, to compare bits by."""


@dataclass(frozen=True)
class Distance:
    """How far one output is from what is expected."""

    place: int
    """Of the element closest to exceeding the tolerance, or furthest past it; past the cap, of the largest error."""
    ratio: float
    """Error divided by the allowed error; infinite if a value that should be finite is not."""
    largest: float
    """Largest finite error anywhere."""
    share: float = 1.0
    """Of the elements within the tolerance; counted only if fewer than all need to be."""

    def is_wrong(self, allowed: Tolerance) -> bool:
        if self.ratio == math.inf or self.is_past_cap(allowed):
            return True
        return self.share < allowed.matched if allowed.matched < 1 else self.ratio > 1

    def is_past_cap(self, allowed: Tolerance) -> bool:
        return allowed.cap is not None and self.largest > allowed.cap


@dataclass(frozen=True)
class _Chunk:
    place: int
    ratio: float
    largest: float
    largest_place: int
    outside: int


def distance(got: torch.Tensor, wanted: torch.Tensor, allowed: Tolerance, is_exact: bool) -> Distance | None:
    """None for an empty output. `is_exact` if got's dtype is that of an integer output which must be equal."""
    got, wanted = got.reshape(-1), wanted.reshape(-1)
    size, chunks = GPU_CHUNK if got.is_cuda else CHUNK, []
    for start in range(0, got.numel(), size):
        here, there = got[start : start + size], wanted[start : start + size]
        chunks.append((start, (_exact_chunk if is_exact else _chunk)(here, there, allowed)))
    if not chunks:
        return None
    start, worst = max(chunks, key=lambda pair: pair[1].ratio)
    first, largest = max(chunks, key=lambda pair: pair[1].largest)
    share = (got.numel() - sum(chunk.outside for _, chunk in chunks)) / got.numel()
    found = Distance(start + worst.place, worst.ratio, largest.largest, share)
    if found.ratio < math.inf and found.is_past_cap(allowed):
        return Distance(first + largest.largest_place, found.ratio, found.largest, share)
    return found


def _exact_chunk(got: torch.Tensor, wanted: torch.Tensor, allowed: Tolerance) -> _Chunk:
    wrong = got != wanted.to(got.dtype)
    place = int(wrong.to(torch.uint8).argmax())
    error = (got.double() - wanted.double()).abs()
    ratio = FAR if bool(wrong[place]) else 0.0
    return _Chunk(place, ratio, error.max().item(), int(error.argmax()), int(wrong.count_nonzero()))


def _chunk(got: torch.Tensor, wanted: torch.Tensor, allowed: Tolerance) -> _Chunk:
    wide = torch.complex128 if got.is_complex() or wanted.is_complex() else torch.float64
    exact = wanted.to(wide)
    error = (got.to(wide) - exact).abs()
    ratio = error / (exact.abs() * allowed.rtol + allowed.atol).clamp_min_(1e-300)
    peaks: list[float] = torch.stack([ratio.max(), error.max()]).tolist()  # one synchronization
    if not all(map(math.isfinite, peaks)):  # rare, so handle infinities and NaN only here
        ratio, error = _with_infinities(got, wanted, ratio, error)
        peaks = torch.stack([ratio.max(), error.max()]).tolist()
    outside = int((ratio > 1).count_nonzero()) if allowed.matched < 1 else 0
    past = allowed.cap is not None and peaks[1] > allowed.cap
    return _Chunk(int(ratio.argmax()), peaks[0], peaks[1], int(error.argmax()) if past else 0, outside)


def _with_infinities(
    got: torch.Tensor, wanted: torch.Tensor, ratio: torch.Tensor, error: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.complex128 if got.is_complex() else torch.float64  # the small formats have no comparison
    rounded, got = wanted.to(got.dtype).to(wide), got.to(wide)
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    strange = ~(got.isfinite() & rounded.isfinite())
    ratio = ratio.nan_to_num_(nan=math.inf, posinf=FAR)
    return torch.where(strange, torch.where(same, 0.0, math.inf), ratio), torch.where(strange, 0.0, error)


def equal_share(outputs: Outputs, expected: Outputs) -> float | None:
    """The share of values that are bit for bit the expected ones, over all outputs of the expected dtype and shape."""
    same = count = 0
    for got, wanted in zip(outputs.values(), expected.values(), strict=True):
        if got is None or wanted is None or (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
            continue
        if tensor_layout.plain(got) and tensor_layout.plain(wanted):
            count += got.numel()
            same += _equal(got.detach(), wanted.detach())
    return same / count if count else None


def _equal(got: torch.Tensor, wanted: torch.Tensor) -> int:
    equal = _bits(got) == _bits(wanted)
    return int((equal.all(-1) if got.is_complex() else equal).count_nonzero())


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return parts.contiguous().view(WORDS[parts.element_size()])


def are_finite(outputs: Outputs) -> bool:
    """Whether all values are finite; NaN and infinities survive a sum."""
    return all(value is None or _is_finite(value.detach()) for value in outputs.values())


def _is_finite(value: torch.Tensor) -> bool:
    if value.is_complex():
        return bool(torch.isfinite(value.sum()))
    if not value.is_floating_point():
        return True
    value = value.to(torch.float32) if value.element_size() == 1 else value  # the small formats have no sum
    return bool(torch.isfinite(value.sum(dtype=torch.float64)))  # a sum of float16 values is often too large for one
