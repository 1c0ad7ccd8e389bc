"""Both sums in Triton, for every size, dtype and address that the task allows, and on a CPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096
"""Elements of a program."""
INTERPRETED_TILE = 1 << 17
"""On a CPU the interpreter pays by the operation, whatever its size."""


@triton.jit
def _rows(
    first, update, factor, out, rows, cols, rows_a_factor,
    GATED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < cols)
    place = row[:, None] * cols + column[None, :]
    value = tl.load(first + place, mask=inside, other=0.0).to(tl.float32)
    by = tl.load(factor + (row // rows_a_factor)[:, None] * cols + column[None, :], mask=inside, other=0.0)
    if GATED:
        value += tl.load(update + place, mask=inside, other=0.0).to(tl.float32) * by.to(tl.float32)
    else:
        value += by.to(tl.float32)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)


def summed(first, update, factor, rows, cols, rows_a_factor):
    """first + update * factor, or first + factor without an update; a row of the factor serves so many rows."""
    out = torch.empty(first.shape, dtype=first.dtype, device=first.device)
    if not out.numel():
        return out
    block = min(triton.next_power_of_2(cols), TILE)
    room = TILE if first.is_cuda else INTERPRETED_TILE
    together = max(1, min(room // block, triton.next_power_of_2(rows)))
    _rows[(triton.cdiv(rows, together), triton.cdiv(cols, block))](
        first, update, factor, out, rows, cols, rows_a_factor,
        GATED=update is not None, ROWS=together, BLOCK=block, num_warps=min(max(together * block // 512, 1), 8),
    )  # fmt: skip
    return out
