"""causal_conv3d_cat_pad for torch.compile: the direct entry as an operator that a graph can hold.

Call solution.causal_conv3d_cat_pad where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import causal_conv3d_cat_pad as direct


@torch.library.custom_op("kernbench::causal_conv3d_cat_pad", mutates_args=())
def causal_conv3d_cat_pad(x: torch.Tensor, cache: torch.Tensor | None, padding: list[int]) -> torch.Tensor:
    return direct(x, cache, padding)


@causal_conv3d_cat_pad.register_fake
def _(x, cache, padding):
    batch, channels, frames, height, width = x.shape
    left, right, top, bottom, front, back = padding
    return x.new_empty(batch, channels, frames + front + back, height + top + bottom, width + left + right)
