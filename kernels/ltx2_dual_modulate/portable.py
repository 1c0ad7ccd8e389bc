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
def _part(
    part, table, batch, token, column, inside, batch_step, token_step, column_step, table_column,
    WITH_TABLE: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    kind: tl.constexpr = part.dtype.element_ty
    value = _read(part, batch, token, column, inside, batch_step, token_step, column_step)
    if WITH_TABLE:
        learned = _wide(tl.load(table + column * table_column, mask=inside, other=0.0))
        value = _rounded(_rounded(learned, kind, BY_HAND) + value, kind, BY_HAND)
    return value


@triton.jit
def _modulated_rows(
    x, scale0, shift0, scale1, shift1, table0, table1, table2, table3, first, second, rows, tokens, cols, eps,
    x_batch, x_token, x_column, scale0_batch, scale0_token, scale0_column, shift0_batch, shift0_token, shift0_column,
    scale1_batch, scale1_token, scale1_column, shift1_batch, shift1_token, shift1_column, table_column,
    WITH_TABLE: tl.constexpr, BY_HAND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < cols)
    batch, token = row // tokens, row % tokens
    to = row * cols + column
    value = _read(x, batch, token, column, inside, x_batch, x_token, x_column)
    normal = value * (1.0 / tl.sqrt(tl.sum(value * value, axis=1) / cols + eps))[:, None]
    scale = _part(
        scale0, table0, batch, token, column, inside, scale0_batch, scale0_token, scale0_column, table_column,
        WITH_TABLE, BY_HAND,
    )  # fmt: skip
    shift = _part(
        shift0, table1, batch, token, column, inside, shift0_batch, shift0_token, shift0_column, table_column,
        WITH_TABLE, BY_HAND,
    )  # fmt: skip
    factor = _rounded(1.0 + scale, scale0.dtype.element_ty, BY_HAND)
    tl.store(first + to, normal * factor + shift, mask=inside)
    scale = _part(
        scale1, table2, batch, token, column, inside, scale1_batch, scale1_token, scale1_column, table_column,
        WITH_TABLE, BY_HAND,
    )  # fmt: skip
    shift = _part(
        shift1, table3, batch, token, column, inside, shift1_batch, shift1_token, shift1_column, table_column,
        WITH_TABLE, BY_HAND,
    )  # fmt: skip
    factor = _rounded(1.0 + scale, scale1.dtype.element_ty, BY_HAND)
    tl.store(second + to, normal * factor + shift, mask=inside)


def modulated_rows(x, parts, table, eps):
    """`parts` are the scales and shifts as they are given, or those of the embedding, which the table is added to."""
    batch, tokens, cols = x.shape
    rows = batch * tokens
    first, second = (torch.empty(x.shape, dtype=torch.float32, device=x.device) for _ in range(2))
    if rows:
        block = triton.next_power_of_2(cols)
        together = max(1, min((TILE if x.is_cuda else INTERPRETED_TILE) // block, triton.next_power_of_2(rows)))
        _modulated_rows[(triton.cdiv(rows, together),)](
            x, *parts, *([None] * 4 if table is None else table.unbind()), first, second, rows, tokens, cols,
            float(eps), *(step for tensor in (x, *parts) for step in steps("modulation", tensor, *x.shape)),
            0 if table is None else table.stride(1), WITH_TABLE=table is not None, BY_HAND=not x.is_cuda,
            ROWS=together, BLOCK=block, num_warps=min(max(together * block // 512, 1), 16), enable_fp_fusion=False,
        )  # fmt: skip
    return first, second


def steps(name, operand, batch, tokens, cols):
    """Strides over batches, tokens and columns, 0 where there is one for all."""
    shape, stride = tuple(operand.shape), operand.stride()
    if len(shape) == 1:
        shape, stride = (1, 1, *shape), (0, 0, *stride)
    elif len(shape) == 2:
        shape, stride = (shape[0], 1, shape[1]), (stride[0], 0, stride[1])
    if len(shape) != 3 or shape[0] not in (1, batch) or shape[1] not in (1, tokens) or shape[2] != cols:
        raise ValueError(f"{name} of shape {list(operand.shape)} does not go with rows of {[batch, tokens, cols]}")
    batch_step, token_step, column_step = (
        step if length > 1 else alone for length, step, alone in zip(shape, stride, (0, 0, 1), strict=True)
    )
    return batch_step, token_step, column_step
