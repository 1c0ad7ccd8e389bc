"""What right means for rotary_embedding, and what there is to beat.

`standard` turns adjacent pairs of every head by the angle of the token. `ltx2_split` turns the first half of a head
against its second; there the product with the cosine is rounded to bf16 before the sine's is added, as the model was
trained with, so the rounding belongs to the truth as well.
"""

from __future__ import annotations

import torch

BASE = 10000.0
OTHERS_BESIDE = 3
"""How many tables as wide lie side by side in a buffer that a `sliced` table is cut out of."""


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`table` is the layout of cos and sin, `more_tokens` how many tokens follow in the buffer that x begins."""
    standard = case["variant"] == "standard"
    batch, tokens, heads, dim = (case[name] for name in ("batch", "tokens", "heads", "head_dim"))
    generator = torch.Generator(device=device).manual_seed(seed)
    shape = (batch, tokens + case.get("more_tokens", 0), heads, dim)
    x = torch.randn(shape, generator=generator, device=device).mul_(spread).add_(offset)
    x = x.to(getattr(torch, case.get("dtype", "bfloat16")))[:, :tokens]
    angle = _angles(tokens, 1 if standard else heads, dim // 2, seed % 97, device)
    tables = {"cos": torch.cos(angle), "sin": torch.sin(angle)}
    if standard:
        wide = case.get("table") == "interleaved"
        tables = {name: _per_token(table[:, 0], wide) for name, table in tables.items()}
        return {"x": x, **tables, "variant": "standard", "interleaved": wide}
    layout = case.get("table", "transposed")
    tables = {name: _per_head(table.bfloat16(), batch, layout) for name, table in tables.items()}
    return {"x": x.reshape(batch, tokens, heads * dim), **tables, "variant": "ltx2_split", "interleaved": False}


def _angles(tokens, heads, half, first, device):
    """Position times frequency: [tokens, heads, half], where every head has frequencies of its own."""
    position = torch.arange(first, first + tokens, device=device, dtype=torch.float32)
    exponent = torch.arange(heads * half, device=device, dtype=torch.float32) / (heads * half)
    return (position[:, None] * BASE**-exponent).view(tokens, heads, half)


def _per_token(table, wide):
    return table.repeat_interleave(2, dim=-1) if wide else table


def _per_head(table, batch, layout):
    """[batch, heads, tokens, half]; in memory the tokens come first, unless the layout says otherwise."""
    table = torch.stack([table.roll(shift, dims=0) for shift in range(batch)])
    if layout == "head_first":
        return table.transpose(1, 2).contiguous()
    if layout == "sliced":
        buffer = torch.zeros((*table.shape[:3], OTHERS_BESIDE, table.shape[3]), dtype=table.dtype, device=table.device)
        table = buffer[:, :, :, 1].copy_(table)
    return table.transpose(1, 2)


def rotary_embedding(x, cos, sin, variant, interleaved=False):
    return _turned(torch.float32, x, cos, sin, variant, interleaved).to(x.dtype)


def truth(x, cos, sin, variant, interleaved=False):
    return _turned(torch.float64, x, cos, sin, variant, interleaved)


def _turned(wide, x, cos, sin, variant, interleaved):
    if variant == "standard":
        return _pairs_turned(x.to(wide), cos.to(wide), sin.to(wide), interleaved)
    return _halves_turned(wide, x, cos, sin)


def _pairs_turned(x, cos, sin, interleaved):
    if interleaved and cos.shape[-1] == x.shape[-1]:
        cos, sin = cos[..., ::2], sin[..., ::2]
    cos, sin = cos[:, None, :], sin[:, None, :]
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def _halves_turned(wide, x, cos, sin):
    heads, half = cos.shape[1], cos.shape[3]
    first, second = x.unflatten(-1, (heads, 2, half)).unbind(-2)
    cos, sin = cos.transpose(1, 2), sin.transpose(1, 2)
    turned_first = (first * cos).to(wide) - second.to(wide) * sin.to(wide)
    turned_second = (second * cos).to(wide) + first.to(wide) * sin.to(wide)
    return torch.stack((turned_first, turned_second), dim=-2).flatten(-3)


def traffic(case):
    """Bytes read, bytes written, flops of one call: x in and out once, the tables once."""
    elements = case["batch"] * case["tokens"] * case["heads"] * case["head_dim"]
    size = getattr(torch, case.get("dtype", "bfloat16")).itemsize
    if case["variant"] == "standard":
        width = case["head_dim"] if case.get("table") == "interleaved" else case["head_dim"] // 2
        tables = 2 * case["tokens"] * width * 4
    else:
        tables = elements * 2
    return elements * size + tables, elements * size, 3 * elements
