"""The path for every layout, stride and machine: Triton programs that hold rows in registers between their two uses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from modulation import Spread

NOWHERE = Spread(0, 0, 1, 0)
INTERPRETED_ROWS = 256
"""Rows of a program on the CPU, where a program's steps cost far more than its elements."""


@triton.jit
def _operand(start, batch, token, column, inside, over_batch, over_frames, frame_tokens, over_columns):
    at = start + batch * over_batch + token // frame_tokens * over_frames + column * over_columns
    value = tl.load(at, mask=inside)
    if value.dtype == tl.bfloat16:  # the upper half of a float: said so, because the interpreter converts at a crawl
        value = (value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return tl.where(inside, value.to(tl.float32), 0.0)


@triton.jit
def _rows(
    x, residual, gate, weight, bias, scale, shift, y, summed, rows, tokens, cols, eps,
    x_batch, x_token, residual_batch, residual_token,
    gate_batch, gate_frame, gate_tokens, gate_column, weight_column, bias_column,
    scale_batch, scale_frame, scale_tokens, scale_column,
    shift_batch, shift_frame, shift_tokens, shift_column,
    RESIDUAL: tl.constexpr, GATE: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, LAYER: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < cols)
    batch = row // tokens
    token = row - batch * tokens
    value = _operand(x, batch, token, column, inside, x_batch, x_token, 1, 1)
    if RESIDUAL:
        if GATE:
            value *= _operand(gate, batch, token, column, inside, gate_batch, gate_frame, gate_tokens, gate_column)
        value += _operand(residual, batch, token, column, inside, residual_batch, residual_token, 1, 1)
        tl.store(summed + row * cols + column, value.to(summed.dtype.element_ty), mask=inside)
    if LAYER:
        value = tl.where(inside, value - tl.sum(value, axis=1)[:, None] / cols, 0.0)
    value *= 1.0 / tl.sqrt(tl.sum(value * value, axis=1)[:, None] / cols + eps)
    if WEIGHT:
        value *= _operand(weight, batch, token, column, inside, 0, 0, 1, weight_column)
    if BIAS:
        value += _operand(bias, batch, token, column, inside, 0, 0, 1, bias_column)
    value *= 1.0 + _operand(scale, batch, token, column, inside, scale_batch, scale_frame, scale_tokens, scale_column)
    value += _operand(shift, batch, token, column, inside, shift_batch, shift_frame, shift_tokens, shift_column)
    tl.store(y + row * cols + column, value.to(y.dtype.element_ty), mask=inside)


def norm_rows(x, residual, gate, weight, bias, scale, shift, eps, *, spreads, layer):
    """y, and beside it the sum that was normalised where there is a residual; `spreads` as of `modulation.spread`."""
    batch, tokens, cols = x.shape
    x = x if x.stride(2) == 1 else x.contiguous()
    residual = residual if residual is None or residual.stride(2) == 1 else residual.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    summed = None if residual is None else torch.empty_like(y)
    stream = x if residual is None else residual
    block = triton.next_power_of_2(cols)
    together = 1 if x.is_cuda else INTERPRETED_ROWS
    over = [spread or NOWHERE for spread in spreads]
    if x.numel():
        _rows[(triton.cdiv(batch * tokens, together),)](
            x, residual, gate, weight, bias, scale, shift, y, summed, batch * tokens, tokens, cols, float(eps),
            *x.stride()[:2], *stream.stride()[:2], *over[0], over[1].column, over[2].column, *over[3], *over[4],
            RESIDUAL=residual is not None, GATE=gate is not None, WEIGHT=weight is not None, BIAS=bias is not None,
            LAYER=layer, ROWS=together, BLOCK=block, num_warps=min(max(block // 512, 1), 8),
        )  # fmt: skip
    return y if residual is None else (y, summed)
