"""qknorm_rope for torch.compile: the direct entry as an operator that a graph can hold.

Call solution.qknorm_rope itself where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import qknorm_rope as direct


@torch.library.custom_op("kernbench::qknorm_rope", mutates_args=("q", "k"))
def qknorm_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    is_neox: bool,
    eps: float,
) -> None:
    direct(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps)


@qknorm_rope.register_fake
def _(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps):
    return None
