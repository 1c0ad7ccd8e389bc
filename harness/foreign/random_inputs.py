"""Random inputs as SOL-ExecBench draws them: a norm's weight is one, a mask is zeros and ones, and so on by name.

The rules are the suite's, because its tolerances suit them. A name that none of them fits is drawn from a normal
distribution, or from all small integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2")
WEIGHTS = ("_weight", "_weights", "_proj", "_projs", "_weight_matrix")
MASKS = ("x_mask", "text_mask", "aspect_ratio_mask", "drop_mask", "attention_mask")
BINARY = ("binary", "{0, 1}", "0 or 1", "1.0 for valid", "0.0 for masked")
COSINES, SINES = ("cos", "cos_cached", "rope_cos"), ("sin", "sin_cached", "rope_sin")
POSITIVE = ("rstd", "std", "variance", "var")
DECAYS = {"A": (-1.0, -0.001), "A_log": (-5.0, -1.0), "A_cumsum": (-0.1, 0.0), "g": (-5.0, 0.0)}
"""Ranges of a state space's decays."""
SOFTMAXES = ("attn_weights", "attention_weights", "routing_weights")
FP4_BORDERS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Between the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4 and 6."""


def drawn(name: str, shape: Sequence[int], dtype: torch.dtype, device: str, description: str) -> torch.Tensor:
    """An input of the kind `random`."""
    if not dtype.is_floating_point or str(dtype).removeprefix("torch.") in SMALL_FLOATS:
        return _plain(shape, dtype, device)
    made = _by_name(name, shape, dtype, device, description.lower())
    return _plain(shape, dtype, device) if made is None else made.to(dtype)


def generated(options: dict[str, Any], shape: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """An input whose workload names a distribution."""
    kind = options["type"]
    if kind == "integer":
        return torch.randint(options["low"], options["high"], tuple(shape), dtype=dtype, device=device)
    if kind == "constant":
        return torch.full(tuple(shape), options["value"], device=device).to(dtype)
    if kind == "bernoulli":
        return torch.rand(shape, device=device).lt(options.get("probability", 0.5)).to(dtype)
    if kind == "uniform":
        return _uniform(shape, options["low"], options["high"], device).to(dtype)
    normal = torch.randn(shape, device=device)
    if kind == "simplex":
        return torch.softmax(normal / options.get("temperature", 1.0), options.get("axis", -1)).to(dtype)
    return normal.mul_(options.get("std", 1.0)).add_(options.get("mean", 0.0)).to(dtype)


def _plain(shape: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.randint(0, 2, tuple(shape), device=device).to(dtype)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        low, high = max(limits.min, -1024), min(limits.max + 1, 1024)
        return torch.randint(low, high, tuple(shape), dtype=dtype, device=device)
    if str(dtype).endswith("_x2"):
        return _packed(torch.randn(shape, device=device))
    if dtype.itemsize == 1:
        return torch.randn(shape, device=device).clamp_(-2.0, 2.0).to(dtype)
    return torch.randn(shape, dtype=dtype, device=device)


def _packed(values: torch.Tensor) -> torch.Tensor:
    """Rounded to FP4, two neighbours to a byte."""
    codes = torch.bucketize(values.abs(), torch.tensor(FP4_BORDERS, device=values.device)).to(torch.uint8)
    codes += 8 * (values < 0)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).view(torch.float4_e2m1fn_x2)


def _by_name(name: str, shape: Sequence[int], dtype: torch.dtype, device: str, description: str) -> torch.Tensor | None:
    """In float32; None if no rule fits."""
    base = name.rstrip("0123456789")
    if _of_norm(name, "weight"):
        return torch.ones(shape, device=device)
    if _of_norm(name, "bias"):
        return torch.zeros(shape, device=device)
    if _is_causal(name, shape, description):
        lowest = max(torch.finfo(dtype).min, torch.finfo(torch.float32).min)
        return torch.full(tuple(shape), lowest, device=device).triu_(1)
    if name in MASKS or (name.endswith("_mask") and any(word in description for word in BINARY)):
        return torch.randint(0, 2, tuple(shape), device=device).float()
    if name in COSINES or name in SINES:
        angles = torch.randn(shape, device=device).clamp_(-math.pi, math.pi)
        return torch.cos(angles) if name in COSINES else torch.sin(angles)
    if any(word in POSITIVE or word.endswith(tuple(f"_{item}" for item in POSITIVE)) for word in (name, base)):
        return torch.randn(shape, device=device).abs() + 0.1
    if name in DECAYS:
        values = _uniform(shape, *DECAYS[name], device)
        return values.cumsum(-1) if name == "A_cumsum" else values
    if name in SOFTMAXES or ("softmax" in description and "output" in description):
        return torch.softmax(torch.randn(shape, device=device), -1)
    if len(shape) >= 2 and (base == "weight" or base.endswith(WEIGHTS)):
        return torch.randn(shape, device=device) / math.sqrt(shape[-1])
    return None


def _of_norm(name: str, what: str) -> bool:
    """Whether it is `what` of a norm: norm_weight, input_layernorm_weight, norm2_weight."""
    owner, _, last = name.rpartition("_")
    return last == what and owner.rstrip("0123456789").endswith("norm")


def _is_causal(name: str, shape: Sequence[int], description: str) -> bool:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return False
    return name in ("attention_mask", "causal_mask") or ("attention mask" in description and "causal" in description)


def _uniform(shape: Sequence[int], low: float, high: float, device: str) -> torch.Tensor:
    return torch.empty(tuple(shape), device=device).uniform_(low, high)
