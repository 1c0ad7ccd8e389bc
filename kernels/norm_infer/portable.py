"""The same in Triton, for rows of any width, stride and alignment, and for a CPU."""

from __future__ import annotations

import math

import triton
import triton.language as tl

TILE, MOST_ROWS = 4096, 32
"""Elements and rows of a program."""
INTERPRETED_TILE, MOST_INTERPRETED_ROWS = 65536, 512
"""The interpreter is slow by the program."""


@triton.jit
def _norm_rows(
    x, weight, bias, out, rows, vectors, steps, eps, V: tl.constexpr,
    LAYER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Width and step come as so many vectors of V: all that Triton checks is whether 16 divides a number.
    cols = vectors * V
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < cols)[None, :]
    tile = tl.load(x + row[:, None] * V * steps + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if LAYER:
        tile = tl.where(inside, tile - (tl.sum(tile, axis=1) / cols)[:, None], 0.0)
    tile = tile * (1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / cols + eps))[:, None]
    if WEIGHT:
        tile *= tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        tile += tl.load(bias + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    tl.store(out + row[:, None] * cols + column[None, :], tile.to(out.dtype.element_ty), mask=inside)


def norm_rows(x, weight, bias, out, eps, is_layer):
    """x as [rows, columns] of any strides, out packed."""
    x = x if x.stride(1) == 1 else x.contiguous()
    (rows, cols), stride = x.shape, x.stride(0)
    shared = math.gcd(16, cols, stride)
    block = triton.next_power_of_2(cols)
    tile, most = (TILE, MOST_ROWS) if x.is_cuda else (INTERPRETED_TILE, MOST_INTERPRETED_ROWS)
    together = max(1, min(tile // block, most))
    _norm_rows[(triton.cdiv(rows, together),)](
        x, weight, bias, out, rows, cols // shared, stride // shared, eps,
        V=shared, LAYER=is_layer, WEIGHT=weight is not None, BIAS=bias is not None, ROWS=together, BLOCK=block,
        num_warps=min(max(together * block // 512, 1), 16),
    )  # fmt: skip
