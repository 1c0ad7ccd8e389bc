"""LTX-2's two modulations for torch.compile: an operator for each variant, because they take different tensors.

Call solution.ltx2_dual_modulate itself where no graph is made: an operator adds 15 us to every call.
"""

from __future__ import annotations

import torch
from solution import EXPLICIT, FROM_TEMB
from solution import ltx2_dual_modulate as direct


@torch.library.custom_op("kernbench::ltx2_dual_modulate", mutates_args=())
def ltx2_dual_modulate(
    x: torch.Tensor,
    scale0: torch.Tensor,
    shift0: torch.Tensor,
    scale1: torch.Tensor,
    shift1: torch.Tensor,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    return direct(EXPLICIT, x, scale0, shift0, scale1, shift1, eps=eps)


@ltx2_dual_modulate.register_fake
def _(x, scale0, shift0, scale1, shift1, eps=1e-6):
    return _results(x)


@torch.library.custom_op("kernbench::ltx2_dual_modulate_from_temb", mutates_args=())
def ltx2_dual_modulate_from_temb(
    x: torch.Tensor, temb_scale_shift: torch.Tensor, scale_shift_table: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    return direct(FROM_TEMB, x, temb_scale_shift=temb_scale_shift, scale_shift_table=scale_shift_table, eps=eps)


@ltx2_dual_modulate_from_temb.register_fake
def _(x, temb_scale_shift, scale_shift_table, eps=1e-6):
    return _results(x)


def _results(x):
    return tuple(x.new_empty(x.shape, dtype=torch.float32) for _ in range(2))
