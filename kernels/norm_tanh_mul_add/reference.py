"""What right means for norm_tanh_mul_add, and what there is to beat.

The normalised row is rounded to the activation dtype before it is multiplied, as production does; the dual form takes
its second statistics from the rounded first result. Both roundings are kept in `truth`.
"""

from __future__ import annotations

import torch

EPS = 1e-5
DUAL = "norm_tanh_mul_add_norm_scale"
INTERPRETED_TOKENS = 24
"""On a CPU, where Triton is interpreted, a case of the grid would take a minute with all of its tokens."""


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """scale and shift are one chunk of a packed buffer of `chunks`, the second one; layouts are spelled as in 1SD."""
    generator = torch.Generator(device=device).manual_seed(seed)
    if "shape" in case and torch.device(device).type == "cpu":
        case = {**case, "shape": [case["shape"][0], min(case["shape"][1], INTERPRETED_TOKENS)]}
    dtype, cols, dual = getattr(torch, case["dtype"]), case["cols"], case["variant"] == DUAL
    scale_layout, shift_layout = (case.get(name) or case["layout"] for name in ("scale", "shift"))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device=device)

    def chunk(layout, factor, plus=0.0):
        lead, chunks = _lead(case, layout), case.get("chunks", 2)
        packed = (normal(*lead, chunks * cols) * factor + plus).to(dtype)
        return packed[..., cols : 2 * cols]

    def vector(name, plus, factor, wanted=True):
        return (plus + factor * normal(cols)).to(dtype) if wanted and name in case["affine"].split("+") else None

    full = shift_layout == "BSD" and "scale" in case  # production adds a residual: a tensor of its own, not a chunk
    shift = (normal(*_lead(case, "BSD"), cols) * spread + offset).to(dtype) if full else None
    return {
        "x": (normal(*_lead(case, "BSD"), cols) * spread + offset).to(dtype),
        "weight": vector("weight", 1.0, 0.1),
        "bias": vector("bias", 0.0, 0.1),
        "scale": chunk(scale_layout, 0.5),
        "shift": shift if full else chunk(shift_layout, spread, offset),
        "weight2": vector("weight", 1.0, 0.1, dual),
        "bias2": vector("bias", 0.0, 0.1, dual),
        "scale2": chunk(scale_layout, 0.5) if dual else None,
        "norm_type": case["norm"],
        "eps": EPS,
        "variant": case["variant"],
    }


def norm_tanh_mul_add(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps, variant):
    first = _first(x, weight, bias, scale, shift, norm_type, eps, torch.float32).to(x.dtype)
    if variant != DUAL:
        return first
    return first, _second(first, weight2, bias2, scale2, norm_type, eps, torch.float32).to(x.dtype)


def truth(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps, variant):
    first = _first(x, weight, bias, scale, shift, norm_type, eps, torch.float64)
    if variant != DUAL:
        return first
    return first, _second(first.to(x.dtype), weight2, bias2, scale2, norm_type, eps, torch.float64)


def _first(x, weight, bias, scale, shift, norm_type, eps, wide):
    normal = _normed(x, weight, bias, norm_type, eps, wide)
    return normal.to(wide) * torch.tanh(scale.to(wide)) + shift.to(wide)


def _second(first, weight, bias, scale, norm_type, eps, wide):
    return _normed(first, weight, bias, norm_type, eps, wide).to(wide) * (1.0 + scale.to(wide))


def _normed(x, weight, bias, norm_type, eps, wide):
    """Statistics in `wide`, the result rounded to the dtype of x: that rounding is part of the contract."""
    row = x.to(wide)
    if norm_type == "layer":
        row = row - row.mean(dim=-1, keepdim=True)
    normal = row * torch.rsqrt(row.square().mean(dim=-1, keepdim=True) + eps)
    if weight is not None:
        normal = normal * weight.to(wide)
    if bias is not None:
        normal = normal + bias.to(wide)
    return normal.to(x.dtype)


def traffic(case):
    """Bytes read, bytes written, flops: x in once, a result or two out, modulation and gains as large as they are."""
    dual, cols, size = case["variant"] == DUAL, case["cols"], getattr(torch, case["dtype"]).itemsize
    scale_layout, shift_layout = (case.get(name) or case["layout"] for name in ("scale", "shift"))
    rows = _count(_lead(case, "BSD"))
    vectors = 0 if case["affine"] == "none" else case["affine"].count("+") + 1
    modulation = _count(_lead(case, scale_layout))
    read = rows + _count(_lead(case, shift_layout)) + (vectors + modulation) * (2 if dual else 1)
    flops_each = (6 + vectors + 2 * (case["norm"] == "layer")) * (2 if dual else 1)
    return read * cols * size, rows * (2 if dual else 1) * cols * size, flops_each * rows * cols


def _lead(case, layout):
    """Batch and tokens of a tensor whose layout is spelled 11D, B1D, 1SD or BSD."""
    batch, tokens = (case["batch"], case["tokens"]) if "batch" in case else case["shape"]
    return (batch if layout[0] == "B" else 1, tokens if layout[1] == "S" else 1)


def _count(lead):
    return lead[0] * lead[1]
