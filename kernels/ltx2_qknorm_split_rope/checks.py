"""What ltx2_qknorm_split_rope takes: anything else is a ValueError that says what was given."""

from __future__ import annotations

import torch

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LONGEST_ROW = 32768
"""Columns that a Triton program holds."""


def check(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin):
    if q.dim() != 3 or q.dtype not in DTYPES:
        raise ValueError(f"q must be [B, S, H] of bfloat16, float16 or float32, not {_form(q)}")
    if k.dim() != 3 or k.shape[::2] != q.shape[::2]:
        raise ValueError(f"k is {_form(k)}, which does not go with q, {_form(q)}")
    if q.shape[2] > LONGEST_ROW:
        raise ValueError(f"q has rows of {q.shape[2]} columns; at most {LONGEST_ROW} are taken")
    for name, weight in (("q_norm_weight", q_norm_weight), ("k_norm_weight", k_norm_weight)):
        if weight.shape != q.shape[2:]:
            raise ValueError(f"{name} must be of shape [{q.shape[2]}], not {list(weight.shape)}")
    if q_cos.dim() != 4 or not q_cos.shape[1] * q_cos.shape[3]:
        raise ValueError(f"q_cos must be [B, heads, S, half] with heads and a half, not {list(q_cos.shape)}")
    heads, half = q_cos.shape[1::2]
    tables = {"q_cos": (q_cos, q), "q_sin": (q_sin, q), "k_cos": (k_cos, k), "k_sin": (k_sin, k)}
    for name, (table, x) in tables.items():
        wanted = (x.shape[0], heads, x.shape[1], half)
        if table.shape != wanted or heads * 2 * half != x.shape[2]:
            raise ValueError(f"{name} of shape {list(table.shape)} does not fit rows of shape {list(x.shape)}")
    others = {"k": k, "q_norm_weight": q_norm_weight, "k_norm_weight": k_norm_weight}
    for name, tensor in (*others.items(), *((name, table) for name, (table, _) in tables.items())):
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, but q {q.dtype} on {q.device}")


def _form(tensor):
    return f"{list(tensor.shape)} of {tensor.dtype}"
