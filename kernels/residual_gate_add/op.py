"""The two sums for torch.compile, an operator each.

Call solution.residual_gate_add itself where no graph is made: going through an operator costs 15 us a call and more.
"""

from __future__ import annotations

import torch
from solution import BROADCAST, GATED
from solution import residual_gate_add as direct


@torch.library.custom_op("kernbench::residual_gate_add", mutates_args=())
def residual_gate_add(residual: torch.Tensor, update: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return direct(GATED, residual=residual, update=update, gate=gate)


@residual_gate_add.register_fake
def _(residual, update, gate):
    return residual.new_empty(residual.shape)


@torch.library.custom_op("kernbench::broadcast_add_4d", mutates_args=())
def broadcast_add_4d(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return direct(BROADCAST, a=a, b=b)


@broadcast_add_4d.register_fake
def _(a, b):
    return b.new_empty(b.shape)
