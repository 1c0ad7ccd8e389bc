"""What right means for silu_and_mul, and what there is to beat.

The gate of a language model's feed-forward layer: the first half of every row through SiLU, times the second half. All
of it in fp32 with one rounding; vLLM and SGLang round SiLU to the tensor's dtype before the product.
"""

from __future__ import annotations

import torch


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`d` is the width of the output. `gap` leaves so many elements between rows, `start` begins x so many late."""
    generator = torch.Generator(device=device).manual_seed(seed)
    tokens, cols, gap, start = case["tokens"], 2 * case["d"], case.get("gap", 0), case.get("start", 0)
    values = torch.randn(start + tokens * (cols + gap), generator=generator, device=device)
    values = values.mul_(spread).add_(offset).to(getattr(torch, case["dtype"]))
    return {"x": values[start:].view(tokens, cols + gap)[:, :cols]}


def silu_and_mul(x):
    gate, up = x.chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate.float()) * up.float()).to(x.dtype)


def truth(x):
    gate, up = x.double().chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def traffic(case):
    """Bytes read, bytes written, flops of one call: both halves in once, their product out once."""
    elements, size = case["tokens"] * case["d"], getattr(torch, case["dtype"]).itemsize
    return 2 * elements * size, elements * size, 5 * elements
