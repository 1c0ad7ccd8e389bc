"""The operations between FLUX's matrix products, in the order of diffusers' code, each a function: the sites."""

from __future__ import annotations

import torch


def modulated_norm(x, norm, scale, shift):
    """x [B,T,C]; scale and shift are [B,C]."""
    return norm(x) * (1 + scale[:, None]) + shift[:, None]


def residual_norm(x, residual, gate, norm, scale, shift):
    """The gated sum, normed and modulated, and the sum itself."""
    summed = residual + gate.unsqueeze(1) * x
    return norm(summed) * (1 + scale[:, None]) + shift[:, None], summed


def gated_sum(x, gate, residual):
    return residual + gate.unsqueeze(1) * x


def normed_and_turned(query, key, query_norm, key_norm, rotary, first):
    """RMSNorm and RoPE of the heads [B,T,H,D] of the tokens from `first` on."""
    return tuple(_turned(norm(x), rotary, first) for x, norm in ((query, query_norm), (key, key_norm)))


def joined(attended, projected, activation):
    """Attention's output next to the MLP's hidden values: what the last projection of a single-stream block takes."""
    return torch.cat([attended, activation(projected)], dim=2)


def _turned(x, rotary, first):
    cos, sin = (table[None, first : first + x.shape[1], None] for table in rotary)
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    across = torch.stack([-odd, even], dim=-1).flatten(3)
    return (x.float() * cos + across.float() * sin).to(x.dtype)
