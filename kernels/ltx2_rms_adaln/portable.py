"""The same in Triton, for every dtype, stride and address that the task allows, and on a CPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE, INTERPRETED_TILE = 4096, 1 << 17
"""Elements of a program where rows are short; on a CPU the interpreter pays by the operation, whatever its size."""


@triton.jit
def _wide(value):
    if value.dtype == tl.bfloat16:  # the upper half of a float: said so, because the interpreter converts at a crawl
        value = (value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return value.to(tl.float32)


@triton.jit
def _rounded(value, kind: tl.constexpr, BY_HAND: tl.constexpr):
    """To the nearest value of a dtype, still as fp32. The interpreter's own cast to bfloat16 truncates."""
    if BY_HAND and kind == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
        return tl.where(value != value, value, nearest.to(tl.float32, bitcast=True))
    return value.to(kind).to(tl.float32)


@triton.jit
def _read(pointer, batch, token, column, inside, batch_step, token_step, column_step):
    place = batch * batch_step + token * token_step + column.to(tl.int64) * column_step
    return _wide(tl.load(pointer + place, mask=inside, other=0.0))


@triton.jit
def _modulated_rows(
    x, scale, shift, out, rows, tokens, cols, eps, x_batch, x_token, x_column,
    scale_batch, scale_token, scale_column, shift_batch, shift_token, shift_column,
    BY_HAND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < cols)
    batch, token = row // tokens, row % tokens
    value = _read(x, batch, token, column, inside, x_batch, x_token, x_column)
    factor = 1.0 + _read(scale, batch, token, column, inside, scale_batch, scale_token, scale_column)
    factor = _rounded(factor, scale.dtype.element_ty, BY_HAND)
    added = _read(shift, batch, token, column, inside, shift_batch, shift_token, shift_column)
    inverse = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / cols + eps)
    tl.store(out + row * cols + column, value * inverse[:, None] * factor + added, mask=inside)


def modulated_rows(x, scale, shift, eps):
    batch, tokens, cols = x.shape
    rows = batch * tokens
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    if rows:
        block = triton.next_power_of_2(cols)
        together = max(1, min((TILE if x.is_cuda else INTERPRETED_TILE) // block, triton.next_power_of_2(rows)))
        _modulated_rows[(triton.cdiv(rows, together),)](
            x, scale, shift, out, rows, tokens, cols, float(eps), *steps("x", x, *x.shape),
            *steps("scale", scale, *x.shape), *steps("shift", shift, *x.shape),
            BY_HAND=not x.is_cuda, ROWS=together, BLOCK=block,
            num_warps=min(max(together * block // 512, 1), 16), enable_fp_fusion=False,
        )  # fmt: skip
    return out


def steps(name, operand, batch, tokens, cols):
    """Strides over batches, tokens and columns, 0 where there is one for all."""
    shape, stride = tuple(operand.shape), operand.stride()
    if len(shape) == 1:
        shape, stride = (1, 1, *shape), (0, 0, *stride)
    elif len(shape) == 2:
        shape, stride = (shape[0], 1, shape[1]), (stride[0], 0, stride[1])
    if len(shape) != 3 or shape[0] not in (1, batch) or shape[1] not in (1, tokens) or shape[2] != cols:
        raise ValueError(f"{name} of shape {list(operand.shape)} does not go with x, {[batch, tokens, cols]}")
    batch_step, token_step, column_step = (
        step if length > 1 else alone for length, step, alone in zip(shape, stride, (0, 0, 1), strict=True)
    )
    return batch_step, token_step, column_step
