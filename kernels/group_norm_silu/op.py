"""group_norm_silu for torch.compile: the direct entry as an operator that a graph can hold.

The layout is left to Inductor: between convolutions, which it makes channels-last, it passes that on instead of copying
to what eager would have and back. Call solution.group_norm_silu itself where no graph is made: an operator adds 15 us a
call and more.
"""

from __future__ import annotations

import torch
from solution import group_norm_silu as direct


@torch.library.custom_op("kernbench::group_norm_silu", mutates_args=(), tags=(torch.Tag.flexible_layout,))
def group_norm_silu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int, eps: float
) -> torch.Tensor:
    return direct(x, weight, bias, num_groups, eps, keeps_workspace=False)


@group_norm_silu.register_fake
def _(x, weight, bias, num_groups, eps):
    return torch.empty_like(x)
