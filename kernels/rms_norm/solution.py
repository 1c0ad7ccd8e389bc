"""RMSNorm over rows in Triton: a program takes as many rows as make a good tile, and keeps them in registers.

A row is cut into a head, the largest power of two in it, and a rest, rounded up to one: Triton's tiles are powers of
two, and 5120 columns in a single one of 8192 would leave three eighths of the registers empty. Both are loaded before
either is used.

Triton notices by itself only widths that 16 divides. Rows of 5128 it would load two bytes at a time. So the kernel gets
the width as a number of vectors, and Triton sees in the product what divides it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

WIDEST = 16
"""Elements of a vector."""
OF_A_WARP = 1024
"""Elements: in large calls, where registers are rows in flight."""
SMALL, SMALL_TILE, OF_A_SMALL_WARP = 1 << 21, 2048, 256
"""A call of so many elements is all latency: it loads the gain with x, and a thread has one vector."""
PROGRAMS = 264
"""Two for every multiprocessor of an H200: with fewer, a program takes fewer rows."""


@triton.jit
def _rms_norm(
    x, weight, out, rows, vectors, eps,
    VECTOR: tl.constexpr, ROWS: tl.constexpr, HEAD: tl.constexpr, REST: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    cols = vectors * VECTOR
    first = tl.program_id(0).to(tl.int64) * ROWS
    x += first * cols
    out += first * cols
    row = tl.arange(0, ROWS)[:, None]
    inside = row < rows - first
    column = tl.arange(0, HEAD)[None, :]
    at = row * cols + column
    head = tl.load(x + at, mask=inside, other=0.0)
    if REST:
        last = HEAD + tl.arange(0, REST)[None, :]
        is_column = last < cols
        is_last = inside & is_column
        last_at = row * cols + last
        rest = tl.load(x + last_at, mask=is_last, other=0.0)
    if EARLY:
        gain = tl.load(weight + column)
        if REST:
            last_gain = tl.load(weight + last, mask=is_column, other=0.0)
    head = head.to(tl.float32)
    squares = tl.sum(head * head, axis=1, keep_dims=True)
    if REST:
        rest = rest.to(tl.float32)
        squares += tl.sum(rest * rest, axis=1, keep_dims=True)
    scale = 1.0 / tl.sqrt(squares / cols + eps)
    if not EARLY:
        gain = tl.load(weight + column)
        if REST:
            last_gain = tl.load(weight + last, mask=is_column, other=0.0)
    tl.store(out + at, (head * scale * gain.to(tl.float32)).to(out.dtype.element_ty), mask=inside)
    if REST:
        tl.store(out + last_at, (rest * scale * last_gain.to(tl.float32)).to(out.dtype.element_ty), mask=is_last)


def rms_norm(x, weight, eps):
    cols = x.shape[-1]
    if weight.shape != (cols,):
        raise ValueError(f"weight of shape {list(weight.shape)}: rows of {cols} take one as long")
    x, weight = x.contiguous(), weight.contiguous()
    out = torch.empty_like(x)
    if not x.numel():
        return out
    rows = x.numel() // cols
    head = 1 << (cols.bit_length() - 1)
    rest = triton.next_power_of_2(cols - head) if cols > head else 0
    together, warps, small = _shape(rows, head + rest, x.numel())
    vector = min(cols & -cols, WIDEST)
    _rms_norm[(triton.cdiv(rows, together),)](
        x, weight, out, rows, cols // vector, eps,
        VECTOR=vector, ROWS=together, HEAD=head, REST=rest, EARLY=small, num_warps=warps,
    )  # fmt: skip
    return out


def _shape(rows, width, elements):
    """Rows and warps of a program, and whether the call is a small one; all from a sweep on an H200."""
    small = elements <= SMALL
    fit = (SMALL_TILE if small else OF_A_WARP) // width
    together = max(1, min(1 << fit.bit_length() >> 1, triton.next_power_of_2(rows // PROGRAMS)))
    warps = triton.next_power_of_2(triton.cdiv(together * width, OF_A_WARP))
    if small:
        least = 4 if together == 1 else triton.next_power_of_2(triton.cdiv(together * width, OF_A_SMALL_WARP))
        warps = max(warps, least)
    return together, min(warps, 32), small
