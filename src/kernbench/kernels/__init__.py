"""The shipped kernels, for other programs: all of them in one process, under the names of their tasks.

    from kernbench.kernels import norm_infer                          # to be called where nothing is compiled
    from kernbench.kernels.operators import norm_infer                # for torch.compile

A kernel chooses its CUDA C++ or Triton code by the form of its arguments, and says in one sentence what it cannot take.
Nothing is loaded before a name is asked for: then torch and that one kernel are. CUDA C++ is compiled at the first call
of a form and kept in kernbench's cache on disk.

This is the one room of kernbench that may load torch, and no other room imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernbench.kernels import family

ENTRIES = {
    "attention_choice": "attention_choice",
    "attention_concat_copy": "attention_concat_copy",
    "bias_residual_add": "bias_residual_add",
    "causal_conv3d_cat_pad": "causal_conv3d_cat_pad",
    "ernie_adaln_residual_gate": "ernie_adaln_residual_gate",
    "fuse_scale_shift": "fuse_scale_shift",
    "fused_add_rms_norm": "fused_add_rms_norm",
    "gelu_concat": "gelu_concat",
    "group_norm_silu": "group_norm_silu",
    "ltx2_dual_modulate": "ltx2_dual_modulate",
    "ltx2_qknorm_split_rope": "ltx2_qknorm_split_rope",
    "ltx2_rms_adaln": "ltx2_rms_adaln",
    "norm_infer": "norm_infer",
    "norm_scale_shift": "norm_scale_shift",
    "norm_tanh_mul_add": "norm_tanh_mul_add",
    "qknorm_rope": "qknorm_rope",
    "residual_gate_add": "residual_gate_add",
    "rms_norm": "rms_norm",
    "rotary_embedding": "rotary_embedding",
    "silu_and_mul": "silu_and_mul",
    "softmax_host": "softmax",
    "wan_vae_rmsnorm_silu": "wan_vae_rmsnorm_silu",
}
"""What a task's solution.py calls its function."""


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in ENTRIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(ENTRIES)}")
    found = globals()[name] = family.function(name, "solution", ENTRIES[name])
    return found


def __dir__() -> list[str]:
    return list(ENTRIES)
