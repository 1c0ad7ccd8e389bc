"""Every variant in Triton, for every width, dtype and address that the task allows, and on a CPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE, INTERPRETED_TILE = 4096, 1 << 17
"""Elements of a program where rows are short; on a CPU the interpreter pays by the operation, whatever its size."""


@triton.jit
def _rounded(value, kind: tl.constexpr, BY_HAND: tl.constexpr):
    """To the nearest value of a dtype, still as fp32. The interpreter's own cast to bfloat16 truncates."""
    if BY_HAND and kind == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
        return tl.where(value != value, value, nearest.to(tl.float32, bitcast=True))
    return value.to(kind).to(tl.float32)


@triton.jit
def _rows(
    x, update, gate, weight, scale, shift, out, residual_out, rows, cols, eps,
    GATED: tl.constexpr, NORMED: tl.constexpr, BY_HAND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind: tl.constexpr = x.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < cols)
    place = row[:, None] * cols + column[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        change = tl.load(update + place, mask=inside, other=0.0).to(tl.float32)
        by = tl.load(gate + column, mask=column < cols, other=0.0).to(tl.float32)
        value = _rounded(value + _rounded(by[None, :] * change, kind, BY_HAND), kind, BY_HAND)
        tl.store(residual_out + place, value.to(kind), mask=inside)
    if NORMED:
        inverse = tl.rsqrt(tl.sum(value * value, axis=1) / cols + eps)
        gain = tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)
        factor = _rounded(1.0 + tl.load(scale + column, mask=column < cols, other=0.0).to(tl.float32), kind, BY_HAND)
        added = tl.load(shift + column, mask=column < cols, other=0.0).to(tl.float32)
        value = _rounded(value * inverse[:, None], kind, BY_HAND)
        value = _rounded(value * gain[None, :], kind, BY_HAND)
        value = _rounded(value * factor[None, :], kind, BY_HAND)
        value = _rounded(value + added[None, :], kind, BY_HAND)
        tl.store(out + place, value.to(kind), mask=inside)


def rows_of(x, update, gate, weight, scale, shift, eps):
    """The normed rows of x, or of x + gate * update, which then comes beside them; without a weight that sum alone."""
    rows, cols = x.numel() // max(x.shape[-1], 1), x.shape[-1]
    gated, normed = update is not None, weight is not None
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if normed else None
    residual_out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if gated else None
    if x.numel():
        block = triton.next_power_of_2(cols) if normed else min(triton.next_power_of_2(cols), TILE)
        together = max(1, min((TILE if x.is_cuda else INTERPRETED_TILE) // block, triton.next_power_of_2(rows)))
        _rows[(triton.cdiv(rows, together), triton.cdiv(cols, block))](
            x, update, gate, weight, scale, shift, out, residual_out, rows, cols, float(eps),
            GATED=gated, NORMED=normed, BY_HAND=not x.is_cuda, ROWS=together, BLOCK=block,
            num_warps=min(max(together * block // 512, 1), 16), enable_fp_fusion=False,
        )  # fmt: skip
    return (out, residual_out) if gated and normed else out if normed else residual_out
