"""The shipped kernels as operators of torch, which a compiled graph can hold: what the tasks' op.py define.

Outside of a graph an operator adds 15 us to every call: there call the function of `kernbench.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernbench.kernels import family

FAMILIES = {
    "attention_choice": "attention_choice",
    "attention_concat_copy": "attention_concat_copy",
    "bias_residual_add": "bias_residual_add",
    "causal_conv3d_cat_pad": "causal_conv3d_cat_pad",
    "self_attention_adaln": "ernie_adaln_residual_gate",
    "attention_residual_mlp_adaln": "ernie_adaln_residual_gate",
    "mlp_residual_gate": "ernie_adaln_residual_gate",
    "scale_shift": "fuse_scale_shift",
    "layernorm_gate_select01": "fuse_scale_shift",
    "residual_layernorm_gate_select01": "fuse_scale_shift",
    "fused_add_rms_norm": "fused_add_rms_norm",
    "gelu_concat": "gelu_concat",
    "group_norm_silu": "group_norm_silu",
    "ltx2_dual_modulate": "ltx2_dual_modulate",
    "ltx2_dual_modulate_from_temb": "ltx2_dual_modulate",
    "ltx2_qknorm_split_rope": "ltx2_qknorm_split_rope",
    "ltx2_rms_adaln": "ltx2_rms_adaln",
    "norm_infer": "norm_infer",
    "norm_scale_shift": "norm_scale_shift",
    "norm_tanh_mul_add": "norm_tanh_mul_add",
    "norm_tanh_mul_add_norm_scale": "norm_tanh_mul_add",
    "qknorm_rope": "qknorm_rope",
    "residual_gate_add": "residual_gate_add",
    "broadcast_add_4d": "residual_gate_add",
    "rotary_embedding": "rotary_embedding",
    "silu_and_mul": "silu_and_mul",
    "wan_vae_rmsnorm_silu": "wan_vae_rmsnorm_silu",
}
"""The task that defines an operator; some have one per variant, because a variant decides how many tensors return."""


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(FAMILIES)}")
    found = globals()[name] = family.function(FAMILIES[name], "op", name)
    return found


def __dir__() -> list[str]:
    return list(FAMILIES)
