"""Both pairings in one Triton kernel, for any strides, dtype and size that the task allows.

A program takes a tile of [tokens, heads, pairs] out of one batch, so that nothing is divided and tables that all heads
share are read once. Triton must know what widths and strides are multiples of to load more than one element at a time:
the width is constant, and strides come as multiples of STEP or TABLE_STEP.
"""

from __future__ import annotations

from math import gcd

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
def _wide(value):
    if value.dtype == tl.bfloat16:  # the upper half of a float: said so, because the interpreter converts at a crawl
        value = (value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return value.to(tl.float32)


@triton.jit
def _turn(
    x, cos, sin, out, tokens, heads,
    x_batch, x_token, x_head, cos_batch, cos_token, cos_head, cos_pair, sin_batch, sin_token, sin_head, sin_pair,
    DIM: tl.constexpr, STEP: tl.constexpr, TABLE_STEP: tl.constexpr, SPLIT: tl.constexpr, SHARED: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    half: tl.constexpr = DIM // 2
    of_heads, of_tokens = tl.cdiv(heads, HEADS), tl.cdiv(tokens, TOKENS)
    head = (tl.program_id(0) % of_heads).to(tl.int64) * HEADS + tl.arange(0, HEADS)[None, :, None]
    rest = tl.program_id(0) // of_heads
    token = (rest % of_tokens).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)[:, None, None]
    batch = (rest // of_tokens).to(tl.int64)
    pair = tl.arange(0, PAIRS).to(tl.int64)[None, None, :]  # in 32 bits its product with a stride may not fit
    inside = (token < tokens) & (head < heads)
    x += (batch * x_batch + token * x_token + head * x_head) * STEP
    out += ((batch * tokens + token) * heads + head) * DIM
    cos += (batch * cos_batch + token * cos_token) * TABLE_STEP + pair * cos_pair
    sin += (batch * sin_batch + token * sin_token) * TABLE_STEP + pair * sin_pair
    if SHARED:
        known = (token < tokens) & (pair < half)
    else:
        known = inside & (pair < half)
        cos += head * cos_head * TABLE_STEP
        sin += head * sin_head * TABLE_STEP
    c = _wide(tl.load(cos, mask=known, other=0.0))
    s = _wide(tl.load(sin, mask=known, other=0.0))
    if SPLIT:
        turning = inside & (pair < half)
        one = _wide(tl.load(x + pair, mask=turning, other=0.0))
        other = _wide(tl.load(x + pair + half, mask=turning, other=0.0))
        new_one = _to_bf16_and_back(_to_bf16_and_back(one * c) - other * s)
        new_other = _to_bf16_and_back(_to_bf16_and_back(other * c) + one * s)
        tl.store(out + pair, new_one.to(out.dtype.element_ty), mask=turning)
        tl.store(out + pair + half, new_other.to(out.dtype.element_ty), mask=turning)
    else:  # the even and the odd lanes, loaded as one tile, come in vectors
        lane = tl.arange(0, 2 * PAIRS)[None, None, :]
        turning = inside & (lane < DIM)
        both = _wide(tl.load(x + lane, mask=turning, other=0.0))
        one, other = tl.split(tl.reshape(both, [TOKENS, HEADS, PAIRS, 2]))
        made = tl.reshape(tl.join(one * c - other * s, other * c + one * s), [TOKENS, HEADS, 2 * PAIRS])
        tl.store(out + lane, made.to(out.dtype.element_ty), mask=turning)


def turn(x, cos, sin, split):
    """`x` as [B, T, H, D]; the tables as [B, T, H, D / 2], a size of 1 where they are shared."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    batch, tokens, heads, dim = x.shape
    x = x if x.stride(3) == 1 else x.contiguous()
    pairs = triton.next_power_of_2(dim // 2)
    tile = max(1, (TILE if x.is_cuda else INTERPRETED_TILE) // pairs)
    of_heads = min(heads & -heads, tile)  # the largest power of two that leaves no tile uneven
    of_tokens = min(triton.next_power_of_2(tokens), tile // of_heads)
    x_steps, cos_steps, sin_steps = (
        [stride if length > 1 else 0 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        for tensor in (x, cos, sin)
    )
    step, table_step = gcd(16, *x_steps[:3]), gcd(16, *cos_steps[:3], *sin_steps[:3])
    _turn[(batch * triton.cdiv(tokens, of_tokens) * triton.cdiv(heads, of_heads),)](
        x, cos, sin, out, tokens, heads, *(each // step for each in x_steps[:3]),
        *(each // table_step for each in cos_steps[:3]), cos_steps[3],
        *(each // table_step for each in sin_steps[:3]), sin_steps[3],
        DIM=dim, STEP=step, TABLE_STEP=table_step, SPLIT=split, SHARED=cos.shape[2] == 1,
        TOKENS=of_tokens, HEADS=of_heads, PAIRS=pairs,
    )  # fmt: skip
    return out
