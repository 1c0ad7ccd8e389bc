"""Both pairings in one Triton kernel, for any strides, dtype and size that the task allows.

A program takes a tile of heads, whichever tokens they belong to. Which two elements of a head make a pair is one pitch
and one gap: adjacent ones, or those half a head apart. Tables that all heads share are read with a head stride of 0.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 1024
"""Pairs of a program."""
INTERPRETED_TILE = 1 << 18
"""On a CPU the interpreter pays by the operation, whatever its size."""


@triton.jit
def _to_bf16_and_back(value):
    """To the nearest, ties to even, in whole numbers: the interpreter's own conversion cuts off."""
    bits = value.to(tl.uint32, bitcast=True)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _turn(
    x, cos, sin, out, rows, tokens, heads, half,
    x_batch, x_token, x_head, cos_batch, cos_token, cos_head, cos_pair, sin_batch, sin_token, sin_head, sin_pair,
    SPLIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (pair < half)
    head, token, batch = row % heads, row // heads % tokens, row // heads // tokens
    if SPLIT:
        first, gap = pair, half
    else:
        first, gap = 2 * pair, 1
    x += batch * x_batch + token * x_token + head * x_head + first
    one = tl.load(x, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(x + gap, mask=inside, other=0.0).to(tl.float32)
    cos += batch * cos_batch + token * cos_token + head * cos_head + pair * cos_pair
    sin += batch * sin_batch + token * sin_token + head * sin_head + pair * sin_pair
    c = tl.load(cos, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin, mask=inside, other=0.0).to(tl.float32)
    if SPLIT:
        turned_one = _to_bf16_and_back(_to_bf16_and_back(one * c) - other * s)
        turned_other = _to_bf16_and_back(_to_bf16_and_back(other * c) + one * s)
    else:
        turned_one, turned_other = one * c - other * s, other * c + one * s
    out += row * (2 * half) + first
    tl.store(out, turned_one.to(out.dtype.element_ty), mask=inside)
    tl.store(out + gap, turned_other.to(out.dtype.element_ty), mask=inside)


def turn(x, cos, sin, split):
    """`x` as [B, T, H, D]; the tables as [B, T, H, D / 2], a size of 1 where they are shared."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    batch, tokens, heads, dim = x.shape
    x = x if x.stride(3) == 1 else x.contiguous()
    rows, block = batch * tokens * heads, triton.next_power_of_2(dim // 2)
    together = max(1, (TILE if x.is_cuda else INTERPRETED_TILE) // block)
    steps = [
        step if length > 1 else 0
        for table in (cos, sin)
        for length, step in zip(table.shape, table.stride(), strict=True)
    ]
    _turn[(triton.cdiv(rows, together),)](
        x, cos, sin, out, rows, tokens, heads, dim // 2, *x.stride()[:3], *steps,
        SPLIT=split, ROWS=together, BLOCK=block,
    )  # fmt: skip
    return out
