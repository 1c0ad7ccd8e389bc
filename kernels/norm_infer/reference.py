"""What right means for norm_infer, and what there is to beat."""

from __future__ import annotations

import torch

EPS = 1e-6


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`affine` says which of gain and offset there are, `start` how many elements into its buffer x begins."""
    generator = torch.Generator(device=device).manual_seed(seed)
    rows, cols, dtype, start = _rows(case), case["cols"], getattr(torch, case["dtype"]), case.get("start", 0)
    flat = torch.randn(start + rows * cols, generator=generator, device=device) * spread + offset
    weight = 1.0 + 0.1 * torch.randn(cols, generator=generator, device=device)
    bias = 0.1 * torch.randn(cols, generator=generator, device=device)
    return {
        "x": flat.to(dtype)[start:].view(rows, cols),
        "weight": weight.to(dtype) if "weight" in _affine(case) else None,
        "bias": bias.to(dtype) if "bias" in _affine(case) else None,
        "eps": EPS,
        "variant": case["variant"],
    }


def norm_infer(x, weight, bias, eps, variant):
    return _normed(x.float(), weight, bias, eps, variant).to(x.dtype)


def truth(x, weight, bias, eps, variant):
    return _normed(x.double(), weight, bias, eps, variant)


def _normed(wide, weight, bias, eps, variant):
    """In the precision of `wide`; LayerNorm centres its variance, so that a mean far from zero costs nothing."""
    if variant == "layernorm":
        wide = wide - wide.mean(dim=-1, keepdim=True)
    normal = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    if weight is not None:
        normal = normal * weight.to(wide.dtype)
    if bias is not None:
        normal = normal + bias.to(wide.dtype)
    return normal


def traffic(case):
    """Bytes read, bytes written, flops of one call: x in and out once, gain and offset once."""
    elements, size = _rows(case) * case["cols"], getattr(torch, case["dtype"]).itemsize
    vectors = len(_affine(case)) * case["cols"]
    flops = elements * (3 + len(_affine(case)) + 2 * (case["variant"] == "layernorm"))
    return (elements + vectors) * size, elements * size, flops


def _rows(case):
    return case["rows"] if "rows" in case else case["batch"] * case["tokens"]


def _affine(case):
    """Attention heads have a gain and never an offset; the others both, if the case does not say otherwise."""
    given = case.get("affine", "weight" if case["variant"] == "rmsnorm_onepass" else "weight+bias")
    return () if given == "none" else tuple(given.split("+"))
