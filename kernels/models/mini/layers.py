"""What the model computes between its matrix products, one torch call after the other, as model code spells it.

Each function is a site: the model calls it through this module, so that a kernel can take its place.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

EPS = 1e-6
GATED_EPS = 1e-5


def modulated_norm(x, scale, shift):
    """LayerNorm of x [B,T,C], modulated by scale and shift [B,1,C]."""
    return F.layer_norm(x, x.shape[-1:], eps=EPS) * (1 + scale) + shift


def residual_norm(x, residual, gate, scale, shift):
    """The gated sum, normed and modulated, and the sum itself."""
    summed = residual + gate * x
    return F.layer_norm(summed, summed.shape[-1:], eps=EPS) * (1 + scale) + shift, summed


def normed_and_turned(q, k, q_weight, k_weight, cos_sin, positions):
    """RMSNorm of every head of q and k [1,T,H,D], then RoPE of adjacent pairs."""
    cos, sin = cos_sin[positions].chunk(2, dim=-1)
    q, k = F.rms_norm(q, q.shape[-1:], q_weight, EPS), F.rms_norm(k, k.shape[-1:], k_weight, EPS)
    return _turned(q, cos, sin), _turned(k, cos, sin)


def rms_rows(x, weight):
    """RMSNorm across all heads."""
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


def turned(x, cos, sin):
    """RoPE of adjacent pairs of x [B,T,H,D]; cos and sin are [T,D/2]."""
    return _turned(x, cos, sin)


def _turned(x, cos, sin):
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2).to(x.dtype)


def gated_norm(x, weight, gate, residual):
    """The normed rows, through a tanh gate [B,1,C] onto the residual."""
    return residual + torch.tanh(gate) * F.rms_norm(x, x.shape[-1:], weight, GATED_EPS)


def gated_sum(x, gate, residual):
    return residual + gate * x


def joined(attended, projected):
    """Attention's output next to the GELU of the MLP's hidden values."""
    return torch.cat([attended, F.gelu(projected, approximate="tanh")], dim=-1)


def normed_silu(x, weight, bias, groups):
    return F.silu(F.group_norm(x, groups, weight, bias, EPS))
