"""What rotary_embedding takes: anything else is a ValueError that says what was given."""

from __future__ import annotations

import torch

VARIANTS = ("standard", "ltx2_split")


def check(x, cos, sin, variant, interleaved):
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r} is none of {', '.join(VARIANTS)}")
    if cos.shape != sin.shape or cos.dtype != sin.dtype:
        raise ValueError(f"cos is {cos.dtype} {list(cos.shape)}, sin {sin.dtype} {list(sin.shape)}: they must agree")
    if not x.device == cos.device == sin.device:
        raise ValueError(f"x is on {x.device}, cos on {cos.device}, sin on {sin.device}")
    if variant == "ltx2_split":
        _check_halves(x, cos, sin)
    else:
        _check_pairs(x, cos, interleaved)


def _check_halves(x, cos, sin):
    if x.dtype != torch.bfloat16 or cos.dtype != torch.bfloat16:
        raise ValueError(f"x is {x.dtype}, the tables {cos.dtype}; ltx2_split takes bfloat16")
    if x.dim() != 3 or cos.dim() != 4:
        raise ValueError(f"x is {list(x.shape)}, the tables {list(cos.shape)}; expected [B,S,H*2*half], [B,H,S,half]")
    batch, heads, tokens, half = cos.shape
    if x.shape != (batch, tokens, heads * 2 * half):
        raise ValueError(f"x of shape {list(x.shape)} does not fit tables of {list(cos.shape)}")
    if half > 1 and (cos.stride(3) != 1 or sin.stride(3) != 1):
        raise ValueError(f"the last strides of cos and sin must be 1; they are {cos.stride(3)} and {sin.stride(3)}")


def _check_pairs(x, cos, interleaved):
    if x.dtype not in (torch.bfloat16, torch.float16, torch.float32) or cos.dtype != torch.float32:
        raise ValueError(f"x is {x.dtype}, the tables {cos.dtype}; standard takes a float x and float32 tables")
    if x.dim() not in (3, 4) or x.shape[-1] % 2 or not x.shape[-1]:
        raise ValueError(f"x of shape {list(x.shape)}; expected [B,T,H,D] or [T,H,D] with an even D")
    tokens, dim = x.shape[-3], x.shape[-1]
    widths = (dim // 2, dim) if interleaved else (dim // 2,)
    if cos.dim() != 2 or cos.shape[0] != tokens or cos.shape[1] not in widths:
        raise ValueError(f"tables of shape {list(cos.shape)} for {tokens} tokens of heads of {dim}")
