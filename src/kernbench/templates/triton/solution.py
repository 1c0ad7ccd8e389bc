"""silu(gate) * up in Triton: one program per block of elements."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _my_kernel(gate, up, out, count, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    g = tl.load(gate + index, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + index, mask=inside, other=0.0).to(tl.float32)
    y = g / (1.0 + tl.exp(-g)) * u
    tl.store(out + index, y.to(out.dtype.element_ty), mask=inside)


def my_kernel(gate, up):
    out = torch.empty_like(gate)
    block = 1024
    _my_kernel[(triton.cdiv(out.numel(), block),)](gate, up, out, out.numel(), BLOCK=block)
    return out
