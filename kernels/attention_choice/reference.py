"""What right means for attention_choice, and what there is to beat: the kernel that torch itself picks.

softmax(q k^T / sqrt(D)) v for every head, without a mask. The exact result of all rows would take minutes, so the check
takes 64 query rows of every head, drawn anew for every call, and computes these in float64.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

ROWS = 64
"""Query rows of a head that are compared with the exact result."""
BOUND = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 1e-4}
"""Of an element's error, relative to the root mean square of its row: two to three times what a rounding of every
probability and of the result come to."""


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """[B, H, S, D] as models pass it: a transposed view of [B, S, H, D]. `keys` are as many as `tokens` or those of a
    text."""
    generator = torch.Generator(device=device).manual_seed(seed)
    batch, heads, head_dim = case.get("batch", 1), case["heads"], case["head_dim"]

    def draw(tokens):
        values = torch.randn(batch, tokens, heads, head_dim, generator=generator, device=device)
        return values.mul_(spread).add_(offset).to(getattr(torch, case["dtype"])).transpose(1, 2)

    keys = case.get("keys", case["tokens"])
    return {"query": draw(case["tokens"]), "key": draw(keys), "value": draw(keys)}


def attention_choice(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def check(axes, inputs, outputs):
    query, key, value = inputs["query"], inputs["key"], inputs["value"]
    rows = torch.randperm(query.shape[2], device=query.device)[:ROWS]
    worst = 0.0
    for head in range(query.shape[1]):  # all heads at once would take gigabytes
        asked, keys, values = query[:, head, rows].double(), key[:, head].double(), value[:, head].double()
        exact = torch.softmax(asked @ keys.mT / math.sqrt(query.shape[3]), dim=-1) @ values
        apart = (outputs[:, head, rows].double() - exact).abs() / exact.square().mean(-1, keepdim=True).sqrt()
        worst = torch.maximum(apart.max(), torch.as_tensor(worst, device=apart.device))  # NaN included
    lost = (~torch.isfinite(outputs)).sum()
    return [(f"error of {ROWS} rows a head", float(worst), BOUND[query.dtype]), ("not finite", float(lost), 0.0)]


def traffic(case):
    """Bytes read, bytes written, flops of one call: everything once, and the two products of every head."""
    size, keys = getattr(torch, case["dtype"]).itemsize, case.get("keys", case["tokens"])
    width = case.get("batch", 1) * case["heads"] * case["head_dim"]
    tokens = case["tokens"]
    return (tokens + 2 * keys) * width * size, tokens * width * size, 4 * tokens * keys * width
