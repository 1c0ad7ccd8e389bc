"""wan_vae_rmsnorm_silu for torch.compile: the direct entry as an operator that a graph can hold.

Call solution.wan_vae_rmsnorm_silu itself where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import wan_vae_rmsnorm_silu as direct


@torch.library.custom_op("kernbench::wan_vae_rmsnorm_silu", mutates_args=())
def wan_vae_rmsnorm_silu(x: torch.Tensor, gamma: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return direct(x, gamma, bias)


@wan_vae_rmsnorm_silu.register_fake
def _(x, gamma, bias=None):
    return torch.empty_like(x)
