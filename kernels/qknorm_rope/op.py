"""qknorm_rope for torch.compile: an operator that a graph can hold. It returns q and k and leaves its arguments alone:
torch 2.13 loses what an operator writes to an argument after a clone (pytorch #198031).

Call solution.qknorm_rope itself where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import apart


@torch.library.custom_op("kernbench::qknorm_rope", mutates_args=())
def qknorm_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    is_neox: bool,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return apart(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps)


@qknorm_rope.register_fake
def _(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps):
    return q.new_empty(q.shape), k.new_empty(k.shape)
