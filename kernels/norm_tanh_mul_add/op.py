"""norm_tanh_mul_add for torch.compile: the direct entry as two operators that a graph can hold, one per form.

Call solution.norm_tanh_mul_add itself where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import DUAL, SINGLE
from solution import norm_tanh_mul_add as direct


@torch.library.custom_op("kernbench::norm_tanh_mul_add", mutates_args=())
def norm_tanh_mul_add(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    scale: torch.Tensor,
    shift: torch.Tensor,
    norm_type: str,
    eps: float,
) -> torch.Tensor:
    return direct(x, weight, bias, scale, shift, None, None, None, norm_type, eps, SINGLE)


@norm_tanh_mul_add.register_fake
def _(x, weight, bias, scale, shift, norm_type, eps):
    return x.new_empty(x.shape)


@torch.library.custom_op("kernbench::norm_tanh_mul_add_norm_scale", mutates_args=())
def norm_tanh_mul_add_norm_scale(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    scale: torch.Tensor,
    shift: torch.Tensor,
    weight2: torch.Tensor | None,
    bias2: torch.Tensor | None,
    scale2: torch.Tensor,
    norm_type: str,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return direct(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps, DUAL)


@norm_tanh_mul_add_norm_scale.register_fake
def _(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps):
    return x.new_empty(x.shape), x.new_empty(x.shape)
