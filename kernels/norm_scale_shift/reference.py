"""What right means for norm_scale_shift, and what there is to beat.

An adaptive norm: y = norm(v) * (1 + scale) + shift over the last dimension, with statistics in fp32. The plain variant
normalises v = x; the residual one v = residual + gate * x, and returns that sum beside y.
"""

from __future__ import annotations

import math

import torch

PLAIN, RESIDUAL = "norm_scale_shift", "residual_gate_norm_scale_shift"
INTERPRETED_TOKENS = 24
"""On a CPU, where Triton is interpreted, a case of the grid would take a minute with all of its tokens."""


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    batch, tokens, frames, cols = case["shape"]
    if torch.device(device).type == "cpu":
        tokens = min(tokens, max(frames, INTERPRETED_TOKENS // frames * frames))
    shapes = _layouts(batch, tokens, frames, cols)
    dtype = case["dtype"]

    def draw(shape, dtype, width, middle=0.0, stride=None):
        values = torch.randn(shape, generator=generator, device=device) * width + middle
        return _placed(values.to(getattr(torch, dtype)), stride, cols)

    def modulation(layout, name):
        if not layout:
            return None
        of = case.get("gate_dtype" if name == "gate" else "modulation_dtype") or dtype
        return draw(shapes[layout], of, 0.3, stride=case.get(f"{name}_stride"))

    def activation(name):
        return draw((batch, tokens, cols), dtype, spread, offset, case.get(f"{name}_stride"))

    affine = case.get("affine")
    residual = case["variant"] == RESIDUAL
    return {
        "x": activation("x"),
        "residual": activation("residual") if residual else None,
        "gate": modulation(case.get("gate", case["layout"]), "gate") if residual else None,
        "weight": draw((cols,), affine, 0.1, 1.0) if affine else None,
        "bias": draw((cols,), affine, 0.3) if affine else None,
        "scale": modulation(case["layout"], "scale"),
        "shift": modulation(case["layout"], "shift"),
        "variant": case["variant"],
        "norm_type": case["norm_type"],
        "eps": case["eps"],
    }


def norm_scale_shift(x, residual, gate, weight, bias, scale, shift, variant, norm_type, eps):
    y, summed = _in(torch.float32, x, residual, gate, weight, bias, scale, shift, norm_type, eps)
    return (y.to(x.dtype), summed.to(x.dtype)) if variant == RESIDUAL else y.to(x.dtype)


def truth(x, residual, gate, weight, bias, scale, shift, variant, norm_type, eps):
    y, summed = _in(torch.float64, x, residual, gate, weight, bias, scale, shift, norm_type, eps)
    return (y, summed) if variant == RESIDUAL else y


def traffic(case):
    """Bytes read, bytes written, flops: every operand in once and every result out once."""
    batch, tokens, frames, cols = case["shape"]
    shapes = _layouts(batch, tokens, frames, cols)
    size = _size(case["dtype"])
    residual = case["variant"] == RESIDUAL
    elements, streams = batch * tokens * cols, 2 if residual else 1
    read = streams * elements * size
    read += 2 * math.prod(shapes[case["layout"]]) * _size(case.get("modulation_dtype") or case["dtype"])
    gate = case.get("gate", case["layout"]) if residual else None
    if gate:
        read += math.prod(shapes[gate]) * _size(case.get("gate_dtype") or case["dtype"])
    if case.get("affine"):
        read += 2 * cols * _size(case["affine"])
    return read, streams * elements * size, (10 if residual else 8) * elements


def _in(dtype, x, residual, gate, weight, bias, scale, shift, norm_type, eps):
    """y and the sum that was normalised, everything computed in one dtype."""
    value = x.to(dtype)
    if residual is not None:
        value = residual.to(dtype) + (value if gate is None else _over_rows(gate, x).to(dtype) * value)
    centred = value - value.mean(dim=-1, keepdim=True) if norm_type == "layer" else value
    normal = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    if weight is not None:
        normal = normal * weight.to(dtype)
    if bias is not None:
        normal = normal + bias.to(dtype)
    return normal * (1 + _over_rows(scale, x).to(dtype)) + _over_rows(shift, x).to(dtype), value


def _over_rows(operand, x):
    """A modulation operand as it broadcasts against [B, S, D]: frames are repeated token by token."""
    if operand.dim() == 4:
        if x.shape[1] % operand.shape[1]:
            raise ValueError(f"{x.shape[1]} tokens are no multiple of {operand.shape[1]} frames")
        return operand.squeeze(2).repeat_interleave(x.shape[1] // operand.shape[1], dim=1)
    return operand.unsqueeze(1) if operand.dim() == 2 else operand


def _layouts(batch, tokens, frames, cols):
    """The shapes that scale, shift and gate come in, by name."""
    return {
        "BSD": (batch, tokens, cols),
        "1SD": (1, tokens, cols),
        "B1D": (batch, 1, cols),
        "11D": (1, 1, cols),
        "BD": (batch, cols),
        "1D": (1, cols),
        "D": (cols,),
        "1": (1,),
        "BF1D": (batch, frames, 1, cols),
    }


def _placed(values, stride, cols):
    """Values as production has them: a slice of a packed buffer, one chunk into it."""
    if stride is None:
        return values
    span = 1 + sum((length - 1) * step for length, step in zip(values.shape, stride, strict=True))
    buffer = values.new_zeros(cols + span)
    return torch.as_strided(buffer, values.shape, stride, cols).copy_(values)


def _size(dtype):
    return getattr(torch, dtype).itemsize
