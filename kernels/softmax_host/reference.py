"""What right means for softmax_host, and what there is to beat."""

from __future__ import annotations

import torch


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(case["rows"], case["cols"], generator=generator, device=device, dtype=torch.float32)
    return {"x": x * (4.0 * spread) + offset}


def softmax(x):
    return torch.softmax(x, dim=-1)


def truth(x):
    return torch.softmax(x.double(), dim=-1)


def traffic(case):
    """Bytes read, bytes written, flops of one call: each element in once and out once; exp counts as ten."""
    elements = case["rows"] * case["cols"]
    return 4 * elements, 4 * elements, 14 * elements
