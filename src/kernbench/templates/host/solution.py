"""silu(gate) * up in C++. The work is in solution.cpp, next to this file."""

from __future__ import annotations

import torch

from harness import host

_lib = host.load("solution.cpp")


def my_kernel(gate, up):
    out = torch.empty_like(gate)
    _lib.my_kernel(gate, up, out, out.numel())
    return out
