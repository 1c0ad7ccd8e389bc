"""Attention without a mask, by the kernel that is fastest on an H200 for its shape: cuDNN's.

torch picks flash attention, cuDNN's kernel or its own memory-efficient one by rules that change between versions. Here
cuDNN's kernel is called directly within the limits below, past those rules; torch picks for the rest.
task.toml names all three as sides to compare with, so that a run shows which of them wins where.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LONGEST_HEAD, FEWEST_TOKENS = 128, 64
"""The limits within which cuDNN's kernel runs and is the fastest."""


def attention_choice(query, key, value):
    """softmax(q k^T / sqrt(D)) v of [B, H, S, D], with as many keys and values as there are, in q's dtype."""
    _check(query, key, value)
    by_cudnn = (
        query.is_cuda
        and query.dtype != torch.float32
        and query.shape[3] % 8 == 0
        and query.shape[3] <= LONGEST_HEAD
        and min(query.shape[2], key.shape[2]) >= FEWEST_TOKENS
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
    )
    if not by_cudnn:
        return F.scaled_dot_product_attention(query, key, value)
    return torch.ops.aten._scaled_dot_product_cudnn_attention(query, key, value, None, False)[0]


def _check(query, key, value):
    if query.dim() != 4 or query.dtype not in DTYPES:
        raise ValueError(
            f"query must be [B, H, S, D] of float32, bfloat16 or float16, not {list(query.shape)} of {query.dtype}"
        )
    batch, heads, _, head_dim = query.shape
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, but query {query.dtype} on {query.device}")
        if tensor.shape != (batch, heads, key.shape[-2], head_dim) or not tensor.shape[2]:
            raise ValueError(f"{name} of shape {list(tensor.shape)} does not go with query, {list(query.shape)}")
