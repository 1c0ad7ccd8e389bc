"""The path for every layout, stride and machine: Triton programs that hold rows in registers between their two uses.

All that Triton checks about a number is whether 16 divides it. So columns and strides come in steps of a power of two
that divides all of them, which is a constant: what it divides, the compiler can load at once.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from modulation import Spread

NOWHERE = Spread(0, 0, 1, 0)
LONGEST_STEP = 16
TILE = 1024
"""Elements of a program where rows are short."""
INTERPRETED_TILE = 1 << 20
"""On a CPU the interpreter pays by the operation, whatever its size; no tile may be larger."""


@triton.jit
def _loaded(at, inside):
    value = tl.load(at, mask=inside)
    if value.dtype == tl.bfloat16:  # the upper half of a float: said so, because the interpreter converts at a crawl
        value = (value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return tl.where(inside, value.to(tl.float32), 0.0)


@triton.jit
def _operand(start, batch, token, column, inside, over_batch, over_frames, frame_tokens, over_columns, STEP):
    row = batch * over_batch + (token // frame_tokens).to(tl.int64) * over_frames
    return _loaded(start + row * STEP + column.to(tl.int64) * over_columns, inside)


@triton.jit
def _rows(
    x, residual, gate, weight, bias, scale, shift, y, summed, rows, tokens, steps, eps,
    x_batch, x_token, residual_batch, residual_token,
    gate_batch, gate_frame, gate_tokens, gate_column, weight_column, bias_column,
    scale_batch, scale_frame, scale_tokens, scale_column,
    shift_batch, shift_frame, shift_tokens, shift_column,
    RESIDUAL: tl.constexpr, GATE: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, LAYER: tl.constexpr,
    MANY: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0)
    if MANY:
        first = first.to(tl.int64)
    row = (first * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    cols = steps * STEP
    inside = (row < rows) & (column < cols)
    token = row % tokens  # in 32 bits if they do: a division in 64 takes a hundred instructions
    batch = (row // tokens).to(tl.int64)
    place = row.to(tl.int64) * cols
    value = _operand(x, batch, token, column, inside, x_batch, x_token, 1, 1, STEP)
    if RESIDUAL:
        if GATE:
            value *= _operand(
                gate, batch, token, column, inside, gate_batch, gate_frame, gate_tokens, gate_column, STEP
            )
        value += _operand(residual, batch, token, column, inside, residual_batch, residual_token, 1, 1, STEP)
        tl.store(summed + place + column, value.to(summed.dtype.element_ty), mask=inside)
    if LAYER:
        value = tl.where(inside, value - tl.sum(value, axis=1)[:, None] / cols, 0.0)
    value *= 1.0 / tl.sqrt(tl.sum(value * value, axis=1)[:, None] / cols + eps)
    if WEIGHT:
        value *= _loaded(weight + column.to(tl.int64) * weight_column, inside)
    if BIAS:
        value += _loaded(bias + column.to(tl.int64) * bias_column, inside)
    value *= 1.0 + _operand(
        scale, batch, token, column, inside, scale_batch, scale_frame, scale_tokens, scale_column, STEP
    )
    value += _operand(shift, batch, token, column, inside, shift_batch, shift_frame, shift_tokens, shift_column, STEP)
    tl.store(y + place + column, value.to(y.dtype.element_ty), mask=inside)


def norm_rows(x, residual, gate, weight, bias, scale, shift, eps, *, spreads, layer):
    """y, and beside it the sum that was normalised where there is a residual; `spreads` as of `modulation.spread`."""
    batch, tokens, cols = x.shape
    x = x if x.stride(2) == 1 else x.contiguous()
    residual = residual if residual is None or residual.stride(2) == 1 else residual.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    summed = None if residual is None else torch.empty_like(y)
    if not x.numel():
        return y if residual is None else (y, summed)
    stream = x if residual is None else residual
    block = triton.next_power_of_2(cols)
    room = TILE if x.is_cuda else INTERPRETED_TILE
    together = max(1, min(room // block, triton.next_power_of_2(batch * tokens)))
    over = [spread or NOWHERE for spread in spreads]
    strides = [each.stride(axis) if each.shape[axis] > 1 else 0 for each in (x, stream) for axis in (0, 1)]
    step = math.gcd(LONGEST_STEP, cols, *strides, *(stride for spread in over for stride in spread[:2]))
    gate_over, _, _, scale_over, shift_over = (
        (spread.batch // step, spread.frame // step, spread.tokens, spread.column) for spread in over
    )
    _rows[(triton.cdiv(batch * tokens, together),)](
        x, residual, gate, weight, bias, scale, shift, y, summed, batch * tokens, tokens, cols // step, float(eps),
        *(stride // step for stride in strides), *gate_over, over[1].column, over[2].column,
        *scale_over, *shift_over,
        RESIDUAL=residual is not None, GATE=gate is not None, WEIGHT=weight is not None, BIAS=bias is not None,
        LAYER=layer, MANY=batch * tokens >= 1 << 31, STEP=step, ROWS=together, BLOCK=block,
        num_warps=min(max(together * block // 512, 1), 8),
    )  # fmt: skip
    return y if residual is None else (y, summed)
