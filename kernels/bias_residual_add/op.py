"""bias_residual_add for torch.compile, as an operator that a graph can hold.

Inductor makes one pass of the same sum, so that a graph gains nothing by this. Call solution.bias_residual_add itself
where no graph is made: an operator adds 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import bias_residual_add as direct


@torch.library.custom_op("kernbench::bias_residual_add", mutates_args=())
def bias_residual_add(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, divisor: float) -> torch.Tensor:
    return direct(x, bias, residual, divisor)


@bias_residual_add.register_fake
def _(x, bias, residual, divisor):
    return x.new_empty_strided(x.shape, x.stride())
