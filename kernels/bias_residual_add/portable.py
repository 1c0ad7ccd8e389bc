"""The same in Triton, for every size, dtype and address that the task allows, and on a CPU."""

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
    x, bias, residual, out, rows, cols, channels, divisor,
    OF_ROWS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(cols, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    row = program // across * ROWS + tl.arange(0, ROWS)[:, None]
    column = program % across * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < cols)
    place = row * cols + column
    channel = row % channels if OF_ROWS else column
    by = tl.load(bias + channel, mask=channel < channels, other=0.0).to(tl.float32)
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + by
    value = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32) + value
    tl.store(out + place, tl.div_rn(value, divisor).to(out.dtype.element_ty), mask=inside)


def summed(x, bias, residual, divisor):
    """A new tensor with the layout of x."""
    out = torch.empty_like(x)
    if not x.numel():
        return out
    if not same_layout(x, residual):
        residual = torch.empty_like(x).copy_(residual)
    channels, inner = x.shape[1], inner_of(x)
    of_rows = inner > 1
    cols = inner if of_rows else channels
    rows = x.numel() // cols
    block = min(triton.next_power_of_2(cols), TILE)
    room = TILE if x.is_cuda else INTERPRETED_TILE
    together = max(1, min(room // block, triton.next_power_of_2(rows)))
    _rows[(triton.cdiv(rows, together) * triton.cdiv(cols, block),)](
        x, bias.contiguous(), residual, out, rows, cols, channels, float(divisor),
        OF_ROWS=of_rows, ROWS=together, BLOCK=block, num_warps=min(max(together * block // 512, 1), 8),
    )  # fmt: skip
    return out


def same_layout(x, other):
    """Whether two tensors of one shape keep their values in the same places. The stride of a dimension of length 1
    does not matter."""
    steps = zip(x.shape, x.stride(), other.stride(), strict=True)
    return all(length == 1 or own == its for length, own, its in steps)


def inner_of(x):
    """How many values share a channel before the next one begins: a plane, or 1 where channels are adjacent; None for
    a tensor that is neither contiguous nor channels-last without gaps."""
    if x.is_contiguous():
        return max(1, x[0, 0].numel()) if x.numel() else 1
    last = x.permute(0, *range(2, x.dim()), 1)
    return 1 if last.is_contiguous() else None
