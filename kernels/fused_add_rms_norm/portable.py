"""The same in Triton, for rows of any width, stride, alignment and dtype, and for a CPU."""

from __future__ import annotations

import triton
import triton.language as tl

TILE = 4096
"""Elements of a program where rows are short."""
INTERPRETED_TILE = 1 << 16
"""On a CPU the interpreter pays by the operation, whatever its size."""


@triton.jit
def _add_norm_rows(
    x, residual, weight, rows, cols, eps, x_row, x_column, residual_row, residual_column, weight_column,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < cols)
    far = column.to(tl.int64)  # the columns of a transposed tensor lie far apart
    x_at = x + row * x_row + far * x_column
    residual_at = residual + row * residual_row + far * residual_column
    added = tl.load(x_at, mask=inside, other=0.0)
    stream = tl.load(residual_at, mask=inside, other=0.0)
    gain = tl.load(weight + far * weight_column, mask=column < cols, other=0.0).to(tl.float32)
    summed = added.to(tl.float32) + stream.to(tl.float32)
    tl.store(residual_at, summed.to(residual.dtype.element_ty), mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(summed * summed, axis=1) / cols + eps)
    tl.store(x_at, (summed * scale[:, None] * gain).to(x.dtype.element_ty), mask=inside)


def add_norm_rows(x, residual, weight, eps):
    """x and residual as [rows, columns] of any strides; both are overwritten."""
    rows, cols = x.shape
    if not x.numel():
        return
    block = triton.next_power_of_2(cols)
    together = max(1, min((TILE if x.is_cuda else INTERPRETED_TILE) // block, triton.next_power_of_2(rows)))
    _add_norm_rows[(triton.cdiv(rows, together),)](
        x, residual, weight, rows, cols, float(eps), *x.stride(), *residual.stride(), weight.stride(0),
        ROWS=together, BLOCK=block, num_warps=min(max(together * block // 512, 1), 16),
    )  # fmt: skip
