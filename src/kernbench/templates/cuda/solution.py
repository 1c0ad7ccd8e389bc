"""silu(gate) * up in CUDA C++: solution.cu, compiled by NVRTC on every save."""

from __future__ import annotations

import torch

from harness.cuda import load

_NAMES = {torch.float32: "my_kernel<float>", torch.bfloat16: "my_kernel<__nv_bfloat16>"}
_CU = load("solution.cu", names=list(_NAMES.values())) if torch.cuda.is_available() else None


def my_kernel(gate, up):
    if not gate.is_cuda:  # the only path that a machine without a GPU can check
        return (torch.nn.functional.silu(gate.float()) * up.float()).to(gate.dtype)
    out = torch.empty_like(gate)
    threads = 256
    blocks = -(-out.numel() // threads)
    _CU.get(_NAMES[gate.dtype])[blocks, threads](gate, up, out, out.numel())
    return out
