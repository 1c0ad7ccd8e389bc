"""ltx2_qknorm_split_rope for torch.compile: the direct entry as an operator that a graph can hold.

Call solution.ltx2_qknorm_split_rope where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import ltx2_qknorm_split_rope as direct


@torch.library.custom_op("kernbench::ltx2_qknorm_split_rope", mutates_args=())
def ltx2_qknorm_split_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    q_norm_weight: torch.Tensor,
    k_norm_weight: torch.Tensor,
    q_cos: torch.Tensor,
    q_sin: torch.Tensor,
    k_cos: torch.Tensor,
    k_sin: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return direct(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin, eps)


@ltx2_qknorm_split_rope.register_fake
def _(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin, eps):
    return q.new_empty(q.shape), k.new_empty(k.shape)
