"""The same in Triton, for rows of any width, stride, alignment and dtype, and for a CPU.

A program copies or takes the GELU, never both: the output's columns are cut into tiles on either side of the border.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

TILE = 2048
"""Outputs of a program."""
INTERPRETED_TILE = 1 << 16
"""On a CPU the interpreter pays by the operation, whatever its size."""
TWICE_ROOT = tl.constexpr(2 * math.sqrt(2 / math.pi))


@triton.jit
def _gelu(x):
    """x times the sigmoid of 2 sqrt(2/pi) (x + 0.044715 x^3), which is GELU in its tanh form: 1 + tanh would lose the
    tail of negative x, and 1 + a small power the last digits of positive x."""
    inner = TWICE_ROOT * x * (1.0 + 0.044715 * x * x)  # x^2 may be infinite, and then this is, but never a NaN
    power = tl.exp(-tl.abs(inner))
    smaller = power / (1.0 + power)
    return x * tl.where(x > 0, 1.0 - smaller, smaller)


@triton.jit
def _joined_rows(
    attended, mlp, out, rows, attended_width, mlp_width, attended_row, attended_column, mlp_row, mlp_column,
    COPIED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first COPIED programs along the columns copy."""
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    tile = tl.program_id(1)
    out += row * (attended_width + mlp_width)
    if tile < COPIED:
        column = (tile * BLOCK + tl.arange(0, BLOCK))[None, :]
        inside = (row < rows) & (column < attended_width)
        value = tl.load(attended + row * attended_row + column.to(tl.int64) * attended_column, mask=inside)
        tl.store(out + column, value, mask=inside)
    else:
        column = ((tile - COPIED) * BLOCK + tl.arange(0, BLOCK))[None, :]
        inside = (row < rows) & (column < mlp_width)
        x = tl.load(mlp + row * mlp_row + column.to(tl.int64) * mlp_column, mask=inside, other=0.0)
        value = _gelu(x.to(tl.float32)).to(out.dtype.element_ty)
        tl.store(out + attended_width + column, value, mask=inside)


def joined_rows(attended, mlp):
    widths = attended.shape[-1], mlp.shape[-1]
    out = torch.empty((*mlp.shape[:-1], sum(widths)), dtype=mlp.dtype, device=mlp.device)
    if not out.numel():
        return out
    rows, tile = math.prod(mlp.shape[:-1]), TILE if mlp.is_cuda else INTERPRETED_TILE
    flat = [x.reshape(rows, width) for x, width in zip((attended, mlp), widths, strict=True)]
    block = min(triton.next_power_of_2(max(widths)), tile)
    together = min(max(1, tile // block), triton.next_power_of_2(rows))
    copied, through = (triton.cdiv(width, block) for width in widths)
    _joined_rows[triton.cdiv(rows, together), copied + through](
        *flat, out, rows, *widths, *flat[0].stride(), *flat[1].stride(),
        COPIED=copied, ROWS=together, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return out
