"""rotary_embedding for torch.compile: the direct entry as an operator that a graph can hold.

Call solution.rotary_embedding itself where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import rotary_embedding as direct


@torch.library.custom_op("kernbench::rotary_embedding", mutates_args=())
def rotary_embedding(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, variant: str, interleaved: bool = False
) -> torch.Tensor:
    return direct(x, cos, sin, variant, interleaved)


@rotary_embedding.register_fake
def _(x, cos, sin, variant, interleaved=False):
    return x.new_empty(x.shape)
