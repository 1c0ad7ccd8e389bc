"""What right means for attention_concat_copy, and what there is to beat.

Tensors are [B, S, H, D]. `copy_contiguous` makes a slice of heads dense, `concat_sequence` puts two runs of tokens one
after the other, and `slice_heads_then_concat` does so with the rank's own heads of a prefix (a) that has all of them.
"""

from __future__ import annotations

import torch

COPY, CONCAT, SLICE = "copy_contiguous", "concat_sequence", "slice_heads_then_concat"


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`start` begins a so many elements into its buffer."""
    generator = torch.Generator(device=device).manual_seed(seed)
    batch, heads, head_dim, variant = case["batch"], case["heads"], case["head_dim"], case["variant"]
    dtype, start = getattr(torch, case["dtype"]), case.get("start", 0)
    first = _head_start(case)

    def draw(tokens, heads, start=0):
        values = torch.randn(start + batch * tokens * heads * head_dim, generator=generator, device=device)
        return (values * spread + offset).to(dtype)[start:].view(batch, tokens, heads, head_dim)

    a = draw(case["tokens"][0], heads if variant == CONCAT else case["source_heads"], start)
    return {
        "variant": variant,
        "a": a[:, :, first : first + heads] if variant == COPY else a,
        "b": None if variant == COPY else draw(case["tokens"][1], heads),
        "order": case.get("order", "AB"),
        "head_start": first if variant == SLICE else 0,
    }


def attention_concat_copy(variant, a, b, order, head_start):
    if variant == COPY:
        return a.clone(memory_format=torch.contiguous_format)
    if variant == SLICE:
        a = a[:, :, head_start : head_start + b.shape[2]]
    return torch.cat([a, b] if order == "AB" else [b, a], dim=1)


def truth(variant, a, b, order, head_start):
    """Values move and never change, so the entry's own dtype is wide enough."""
    return attention_concat_copy(variant, a, b, order, head_start)


def traffic(case):
    """Bytes read, bytes written: what the output holds, once each."""
    elements = case["batch"] * sum(case["tokens"]) * case["heads"] * case["head_dim"]
    return (elements * getattr(torch, case["dtype"]).itemsize,) * 2


def _head_start(case):
    """A rank's heads begin at a multiple of their number: that nearest below what the case says."""
    return case.get("head_start", 0) // case["heads"] * case["heads"]
