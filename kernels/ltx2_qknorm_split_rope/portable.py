"""The path for every dtype, stride, width and machine, in Triton: a program takes rows of q or of k into registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

INTERPRETED_ROWS = 16
"""Rows of a program on the CPU, where a program's steps cost far more than its elements."""


@triton.jit
def _wide(value):
    if value.dtype == tl.bfloat16:  # the upper half of a float: said so, because the interpreter converts at a crawl
        value = (value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return value.to(tl.float32)


@triton.jit
def _rounded(value, like):
    """To the dtype of `like` and back; by bits to bfloat16, because the interpreter truncates."""
    if like.dtype == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        even = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
        value = tl.where(value == value, even.to(tl.float32, bitcast=True), value)
    if like.dtype == tl.float16:
        value = value.to(tl.float16).to(tl.float32)
    return value


@triton.jit
def _some_rows(
    x, weight, cos, sin, out, rows, tokens, heads, half, eps, x_batch, x_token, x_column, weight_column,
    cos_batch, cos_head, cos_token, cos_column, sin_batch, sin_head, sin_token, sin_column,
    PACKED: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None, None]
    batch = row // tokens
    token = row - batch * tokens
    head = tl.arange(0, HEADS)[None, :, None]
    pair = tl.arange(0, HALF)[None, None, :]
    inside = (row < rows) & (head < heads) & (pair < half)
    if not PACKED:  # a column times a stride leaves 32 bits behind
        pair = pair.to(tl.int64)
    one = head * (2 * half) + pair
    other = one + half
    start = x + batch * x_batch + token * x_token
    given = tl.load(start + one * x_column, mask=inside, other=0.0)
    first, second = _wide(given), _wide(tl.load(start + other * x_column, mask=inside, other=0.0))
    gain_first = _wide(tl.load(weight + one * weight_column, mask=inside, other=0.0))
    gain_second = _wide(tl.load(weight + other * weight_column, mask=inside, other=0.0))
    head = head.to(tl.int64)  # strides of a large table leave 32 bits behind
    of_cos = cos + batch * cos_batch + token * cos_token + head * cos_head + pair * cos_column
    of_sin = sin + batch * sin_batch + token * sin_token + head * sin_head + pair * sin_column
    by_cos = _wide(tl.load(of_cos, mask=inside, other=0.0))
    by_sin = _wide(tl.load(of_sin, mask=inside, other=0.0))
    squares = tl.sum(tl.sum(first * first + second * second, axis=2), axis=1)[:, None, None]
    inverse = 1.0 / tl.sqrt(squares / (heads * half * 2) + eps)
    first = _rounded(gain_first * (inverse * first), given)
    second = _rounded(gain_second * (inverse * second), given)
    turned_first = _rounded(_rounded(first * by_cos, given) - second * by_sin, given)
    turned_second = _rounded(_rounded(second * by_cos, given) + first * by_sin, given)
    to = out + row * (heads * half * 2)
    tl.store(to + one, turned_first.to(out.dtype.element_ty), mask=inside)
    tl.store(to + other, turned_second.to(out.dtype.element_ty), mask=inside)


def norm_and_turn(x, weight, cos, sin, eps):
    """q or k, in a new tensor."""
    batch, tokens, _ = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads, half = cos.shape[1::2]
    if out.numel():
        tile = triton.next_power_of_2(heads), triton.next_power_of_2(half)
        together = 1 if x.is_cuda else INTERPRETED_ROWS
        packed = x.stride(2) == weight.stride(0) == cos.stride(3) == sin.stride(3) == 1
        _some_rows[(triton.cdiv(batch * tokens, together),)](
            x, weight, cos, sin, out, batch * tokens, tokens, heads, half, float(eps), *x.stride(), weight.stride(0),
            *cos.stride(), *sin.stride(), PACKED=packed, ROWS=together, HEADS=tile[0], HALF=tile[1],
            num_warps=min(max(tile[0] * tile[1] // 512, 1), 16),
        )  # fmt: skip
    return out
