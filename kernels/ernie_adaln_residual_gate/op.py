"""The pieces of an ERNIE-Image block for torch.compile: an operator for each variant, because one returns two tensors.

Call solution.ernie_adaln_residual_gate itself where no graph is made: an operator adds 15 us to every call.
"""

from __future__ import annotations

import torch
from solution import GATE, RESIDUAL, SELF
from solution import ernie_adaln_residual_gate as direct


@torch.library.custom_op("kernbench::self_attention_adaln", mutates_args=())
def self_attention_adaln(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    return direct(SELF, x=x, weight=weight, scale=scale, shift=shift, eps=eps)


@self_attention_adaln.register_fake
def _(x, weight, scale, shift, eps=1e-6):
    return x.new_empty(x.shape)


@torch.library.custom_op("kernbench::attention_residual_mlp_adaln", mutates_args=())
def attention_residual_mlp_adaln(
    residual: torch.Tensor,
    update: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    return direct(
        RESIDUAL, residual=residual, update=update, gate=gate, weight=weight, scale=scale, shift=shift, eps=eps
    )


@attention_residual_mlp_adaln.register_fake
def _(residual, update, gate, weight, scale, shift, eps=1e-6):
    return residual.new_empty(residual.shape), residual.new_empty(residual.shape)


@torch.library.custom_op("kernbench::mlp_residual_gate", mutates_args=())
def mlp_residual_gate(residual: torch.Tensor, update: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return direct(GATE, residual=residual, update=update, gate=gate)


@mlp_residual_gate.register_fake
def _(residual, update, gate):
    return residual.new_empty(residual.shape)
