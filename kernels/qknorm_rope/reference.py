"""What right means for qknorm_rope, and what there is to beat."""

from __future__ import annotations

import torch

BASE = 10000.0
"""Of the rotary frequencies."""


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`dims` are those of a head and of its rotated part; `k_heads` and `cache_rows` are as q's where nothing is said.

    `packed` gives q and k as slices of one buffer, as a fused projection of q, k and v leaves them.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    (head_dim, rope_dim), dtype = case["dims"], getattr(torch, case.get("dtype", "bfloat16"))
    tokens, q_heads, k_heads = case["tokens"], case["heads"], _k_heads(case)
    heads = 2 * q_heads + k_heads if case.get("packed") else q_heads + k_heads
    values = torch.randn(tokens, heads, head_dim, generator=generator, device=device) * spread + offset
    q, k = values.to(dtype).split([q_heads, k_heads, heads - q_heads - k_heads], dim=1)[:2]
    q_weight = 1.0 + 0.1 * torch.randn(head_dim, generator=generator, device=device)
    k_weight = 1.0 + 0.1 * torch.randn(head_dim, generator=generator, device=device)
    return {
        "q": q if case.get("packed") else q.contiguous(),
        "k": k if case.get("packed") else k.contiguous(),
        "q_weight": q_weight.to(dtype),
        "k_weight": k_weight.to(dtype),
        "cos_sin_cache": _cos_sin_cache(_cache_rows(case), rope_dim, device),
        "positions": _positions(case, generator, device),
        "is_neox": case["is_neox"],
        "eps": case["eps"],
    }


def _cos_sin_cache(rows, rope_dim, device):
    frequencies = BASE ** (-torch.arange(0, rope_dim, 2, dtype=torch.float64, device=device) / rope_dim)
    angles = torch.arange(rows, dtype=torch.float64, device=device)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()


def _positions(case, generator, device):
    """`positions` names dtype and order, such as "int32 shuffled"."""
    dtype, order = case["positions"].split()
    tokens, rows = case["tokens"], _cache_rows(case)
    if order == "shuffled":
        made = torch.randperm(rows, generator=generator, device=device)[torch.arange(tokens, device=device) % rows]
    else:
        period = {"arange": rows, "zeros": 1, "repeating": min(rows, 7)}[order]
        made = torch.arange(tokens, device=device) % period
    return made.to(getattr(torch, dtype))


def qknorm_rope(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps):
    cos, sin = cos_sin_cache[positions.long()][:, None, :].chunk(2, dim=-1)
    q.copy_(_rotated(_normalised(q, q_weight, eps), cos, sin, is_neox))
    k.copy_(_rotated(_normalised(k, k_weight, eps), cos, sin, is_neox))


def _normalised(x, weight, eps):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * weight.to(wide.dtype)


def _rotated(x, cos, sin, is_neox):
    """The first lanes of every head, as many as there are angles twice, in pairs; the others as they are."""
    rope_dim = 2 * cos.shape[-1]
    turning, still = x[..., :rope_dim], x[..., rope_dim:]
    if is_neox:
        first, second = turning.chunk(2, dim=-1)
    else:
        first, second = turning[..., 0::2], turning[..., 1::2]
    pair = first * cos - second * sin, second * cos + first * sin
    turned = torch.cat(pair, dim=-1) if is_neox else torch.stack(pair, dim=-1).flatten(-2)
    return torch.cat([turned, still], dim=-1)


def traffic(case):
    """Bytes read, bytes written, flops of one call: heads in and out once, each row of the cache that is used once."""
    head_dim, rope_dim = case["dims"]
    tokens, heads = case["tokens"], case["heads"] + _k_heads(case)
    size = getattr(torch, case.get("dtype", "bfloat16")).itemsize
    dtype, order = case["positions"].split()
    used = min(tokens, {"zeros": 1, "repeating": 7}.get(order, tokens), _cache_rows(case))
    beside = 2 * head_dim * size + used * rope_dim * 4 + tokens * getattr(torch, dtype).itemsize
    elements = tokens * heads * head_dim
    return elements * size + beside, elements * size, 4 * elements + 3 * tokens * heads * rope_dim


def _k_heads(case):
    return case.get("k_heads", case["heads"])


def _cache_rows(case):
    return case.get("cache_rows", case["tokens"])
