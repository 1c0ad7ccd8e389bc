"""What right means for rms_norm, and what there is to beat."""

from __future__ import annotations

import torch

EPS = 1e-6


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = getattr(torch, case["dtype"])
    x = torch.randn(case["rows"], case["cols"], generator=generator, device=device) * spread + offset
    weight = 1.0 + 0.1 * torch.randn(case["cols"], generator=generator, device=device)
    return {"x": x.to(dtype), "weight": weight.to(dtype), "eps": EPS}


def rms_norm(x, weight, eps):
    wide = x.float()
    normal = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (normal * weight.float()).to(x.dtype)


def truth(x, weight, eps):
    wide = x.double()
    return wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * weight.double()


def traffic(case):
    """Bytes read, bytes written, flops of one call: every element in once and out once; square, add, two products."""
    elements, size = case["rows"] * case["cols"], getattr(torch, case["dtype"]).itemsize
    return (elements + case["cols"]) * size, elements * size, 4 * elements
