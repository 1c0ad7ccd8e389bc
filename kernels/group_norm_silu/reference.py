"""What right means for group_norm_silu, and what there is to beat."""

from __future__ import annotations

import math

import torch


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`x` is the shape, as 1x512x2x12x10; channels-last tensors are drawn as they lie in memory."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shape, dtype = _shape(case), getattr(torch, case["dtype"])
    lying = (shape[0], *shape[2:], shape[1]) if _is_channels_last(case) else shape
    x = (torch.randn(lying, generator=generator, device=device) * spread + offset).to(dtype)
    weight = 1.0 + 0.1 * torch.randn(shape[1], generator=generator, device=device)
    bias = 0.1 * torch.randn(shape[1], generator=generator, device=device)
    return {
        "x": x.movedim(-1, 1) if _is_channels_last(case) else x,
        "weight": weight.to(dtype),
        "bias": bias.to(dtype),
        "num_groups": case["groups"],
        "eps": case["eps"],
    }


def group_norm_silu(x, weight, bias, num_groups, eps):
    return torch.empty_like(x).copy_(_activated(x.float(), weight, bias, num_groups, eps))


def truth(x, weight, bias, num_groups, eps):
    return _activated(x.double(), weight, bias, num_groups, eps)


def _activated(wide, weight, bias, num_groups, eps):
    """In the precision of `wide`; the variance is centred, so that a mean far from zero costs nothing."""
    grouped = wide.reshape(wide.shape[0], num_groups, wide.shape[1] // num_groups, -1)
    grouped = grouped - grouped.mean(dim=(2, 3), keepdim=True)
    grouped = grouped * torch.rsqrt(grouped.square().mean(dim=(2, 3), keepdim=True) + eps)
    per_channel = (-1, *(1,) * (wide.ndim - 2))
    gain, shift = weight.to(wide.dtype).view(per_channel), bias.to(wide.dtype).view(per_channel)
    affine = grouped.reshape(wide.shape) * gain + shift
    return affine * torch.sigmoid(affine)


def traffic(case):
    """Bytes read, bytes written, flops of one call: x in and out once, gain and offset once."""
    shape, size = _shape(case), getattr(torch, case["dtype"]).itemsize
    elements = math.prod(shape)
    return (elements + 2 * shape[1]) * size, elements * size, 11 * elements


def _shape(case):
    return tuple(int(extent) for extent in case["x"].split("x"))


def _is_channels_last(case):
    return case["variant"].startswith("channels_last")
