"""The same in Triton, for every width, address and dtype, and for a CPU: a program takes a tile of whole positions."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS_TILE, COLUMNS_TILE, INTERPRETED_TILE = 4096, 16384, 1 << 17
"""Elements of a program: positions side by side need a wider tile. The interpreter is slow by the program."""


@triton.jit
def _rounded(value, kind: tl.constexpr, BY_HAND: tl.constexpr):
    """To the nearest value of a dtype. The interpreter's own cast to bfloat16 truncates."""
    if BY_HAND and kind == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
        value = tl.where(value != value, value, nearest.to(tl.float32, bitcast=True))
    return value.to(kind)


@triton.jit
def _normed(
    x, gamma, bias, out, tiles, positions, channels, position_step, channel_step, gamma_step, bias_step, root,
    BIASED: tl.constexpr, BY_HAND: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    outer = tl.program_id(0) // tiles
    position = ((tl.program_id(0) - outer * tiles).to(tl.int64) * POSITIONS + tl.arange(0, POSITIONS))[:, None]
    channel = tl.arange(0, BLOCK)[None, :]
    inside = (position < positions) & (channel < channels)
    at = outer.to(tl.int64) * positions * channels + position * position_step + channel.to(tl.int64) * channel_step
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    norm = tl.sqrt(tl.sum(value * value, axis=1))
    norm = tl.where(norm < 1e-12, 1e-12, norm)
    gain = tl.load(gamma + channel * gamma_step, mask=channel < channels, other=0.0).to(tl.float32)
    value = value * (root / norm)[:, None] * gain
    if BIASED:
        value += tl.load(bias + channel * bias_step, mask=channel < channels, other=0.0).to(tl.float32)
    value = value / (1.0 + tl.exp(-value))
    tl.store(out + at, _rounded(value, x.dtype.element_ty, BY_HAND), mask=inside)


def normed(x, gamma, bias, outer, inner):
    """x is dense: `outer` blocks of channels by `inner` positions, or of positions by channels where inner is 1."""
    out = torch.empty_like(x)
    if not x.numel():
        return out
    channels, last = x.shape[1], inner == 1
    blocks, positions = (1, outer) if last else (outer, inner)
    block = triton.next_power_of_2(channels)
    tile = INTERPRETED_TILE if not x.is_cuda else ROWS_TILE if last else COLUMNS_TILE
    together = max(1, min(tile // block, triton.next_power_of_2(positions)))
    tiles = triton.cdiv(positions, together)
    _normed[(blocks * tiles,)](
        x, gamma, bias, out, tiles, positions, channels, channels if last else 1, 1 if last else inner,
        gamma.stride(0), 0 if bias is None else bias.stride(0), channels**0.5,
        BIASED=bias is not None, BY_HAND=not x.is_cuda, POSITIONS=together, BLOCK=block,
        num_warps=min(max(together * block // 1024, 1), 16),
    )  # fmt: skip
    return out
