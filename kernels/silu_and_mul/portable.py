"""The same in Triton, for rows of any width, stride, alignment and dtype, and for a CPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 2048
"""Outputs of a program."""
INTERPRETED_TILE = 1 << 16
"""On a CPU the interpreter pays by the operation, whatever its size."""


@triton.jit
def _gated_rows(x, out, rows, width, x_row, x_column, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (column < width)
    at = x + row * x_row
    gate = tl.load(at + column.to(tl.int64) * x_column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + (column + width).to(tl.int64) * x_column, mask=inside, other=0.0).to(tl.float32)
    power = tl.exp(-tl.abs(gate))  # never beyond 1, whatever the gate
    value = gate * tl.where(gate < 0, power, 1.0) / (1.0 + power) * up
    tl.store(out + row * width + column, value.to(out.dtype.element_ty), mask=inside)


def gated_rows(x):
    width = x.shape[-1] // 2
    out = torch.empty((*x.shape[:-1], width), dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    flat = x.reshape(-1, 2 * width)
    rows, tile = flat.shape[0], TILE if x.is_cuda else INTERPRETED_TILE
    block = min(triton.next_power_of_2(width), tile)
    together = min(max(1, tile // block), triton.next_power_of_2(rows))
    grid = triton.cdiv(rows, together), triton.cdiv(width, block)
    _gated_rows[grid](flat, out, rows, width, *flat.stride(), ROWS=together, BLOCK=block, num_warps=4)
    return out
