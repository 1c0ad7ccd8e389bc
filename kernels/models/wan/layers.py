"""The operations between Wan's matrix products, in the order of diffusers' code, each a function: the sites.

Modulation is in fp32 and so is every intermediate value; the results have the dtype of the activations.
"""

from __future__ import annotations

import torch


def modulated_norm(x, norm, scale, shift):
    return (norm(x.float()) * (1 + scale) + shift).type_as(x)


def gated_norm(x, residual, gate, norm):
    """The gated sum through a norm with weight and bias, and the sum itself."""
    summed = (residual.float() + x * gate).type_as(residual)
    return norm(summed.float()).type_as(summed), summed


def summed_norm(x, residual, norm, scale, shift):
    """The plain sum, normed and modulated, and the sum itself."""
    summed = residual + x
    return (norm(summed.float()) * (1 + scale) + shift).type_as(summed), summed


def gated_sum(x, gate, residual):
    return (residual.float() + x.float() * gate).type_as(residual)


def rms_rows(x, norm):
    """Across all heads."""
    return norm(x)


def turned(x, rotary):
    """RoPE of adjacent pairs of x [B,T,H,D]; the angles are [1,T,1,D], each twice."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = rotary[0][..., 0::2], rotary[1][..., 1::2]
    out = torch.empty_like(x)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out
