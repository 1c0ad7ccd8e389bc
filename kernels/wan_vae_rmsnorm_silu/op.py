"""wan_vae_rmsnorm_silu for torch.compile: the direct entry as an operator that a graph can hold.

The layout is left to Inductor: between convolutions, which it makes channels-last, it passes that on instead of copying
to what eager would have and back. Call solution.wan_vae_rmsnorm_silu itself where no graph is made: an operator adds 15
us a call and more.
"""

from __future__ import annotations

import torch
from solution import wan_vae_rmsnorm_silu as direct


@torch.library.custom_op("kernbench::wan_vae_rmsnorm_silu", mutates_args=(), tags=(torch.Tag.flexible_layout,))
def wan_vae_rmsnorm_silu(x: torch.Tensor, gamma: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return direct(x, gamma, bias)


@wan_vae_rmsnorm_silu.register_fake
def _(x, gamma, bias=None):
    return torch.empty_like(x)
