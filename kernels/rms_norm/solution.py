"""RMSNorm over rows in Triton: a program takes as many rows as make a good tile, and keeps them in registers.

A row of 128 columns is 256 bytes, too little for a program of its own: several rows share one. From 2048 columns on a
row is a tile by itself.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096
"""Elements of a program, where there are rows enough to give every multiprocessor two programs."""
PROGRAMS = 264


@triton.jit
def _rms_norm(x, weight, out, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    place = row[:, None] * cols + column[None, :]
    inside = (row[:, None] < rows) & (column[None, :] < cols)
    tile = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / cols + eps)
    tl.store(out + place, (tile * scale[:, None] * gain[None, :]).to(out.dtype.element_ty), mask=inside)


def rms_norm(x, weight, eps):
    x = x.contiguous()
    out = torch.empty_like(x)
    cols = x.shape[-1]
    rows = x.numel() // cols
    block = triton.next_power_of_2(cols)
    together = max(1, min(TILE // block, triton.next_power_of_2(rows // PROGRAMS)))
    warps = min(max(together * block // 512, 1), 8)
    _rms_norm[(triton.cdiv(rows, together),)](
        x, weight, out, rows, cols, eps, ROWS=together, BLOCK=block, num_warps=warps
    )
    return out
