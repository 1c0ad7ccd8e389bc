"""Softmax over the last axis, in C++. The work is in solution.cpp beside this file: edit it, save it, look."""

from __future__ import annotations

import torch

from harness import host

_lib = host.load("solution.cpp")


def softmax(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    cols = x.shape[-1]
    _lib.softmax(x, out, x.numel() // cols, cols)
    return out
