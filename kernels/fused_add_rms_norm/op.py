"""fused_add_rms_norm for torch.compile: an operator that a graph can hold. It returns the norm and the sum and leaves
its arguments alone: torch 2.13 loses what an operator writes to an argument after a clone (pytorch #198031).

Call solution.fused_add_rms_norm itself where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import apart


@torch.library.custom_op("kernbench::fused_add_rms_norm", mutates_args=())
def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return apart(x, residual, weight, eps)


@fused_add_rms_norm.register_fake
def _(x, residual, weight, eps):
    return x.new_empty(x.shape), x.new_empty(x.shape)
