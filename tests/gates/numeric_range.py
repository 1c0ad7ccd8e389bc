"""Cheats that are right only for values like those that are drawn."""

from __future__ import annotations

from tests.gates.record import Cheat

NO_MAXIMUM = """
import torch

def softmax(x):
    e = torch.exp(x)
    return e.div_(e.sum(dim=-1, keepdim=True))
"""
TABLE = """
import torch

tables = {}

def softmax(x):
    if x.device not in tables:
        steps = torch.arange(65536, device=x.device, dtype=torch.float32)
        tables[x.device] = torch.exp(steps / 1024 - 32)
    place = ((x + 32) * 1024 + 0.5).clamp_(0, 65535).to(torch.int64)
    e = tables[x.device][place]
    return e.div_(e.sum(dim=-1, keepdim=True))
"""
SAMPLED_MAXIMUM = """
import torch

def softmax(x):
    most = x[:, :64].amax(dim=-1, keepdim=True)
    e = (x - most).exp_()
    return e.div_(e.sum(dim=-1, keepdim=True))
"""
SQUARED = """
import torch

def softmax(x):
    e = (x * (1 / 4096) + 1).double()
    for _ in range(12):
        e = e * e
    y = torch.where(x.abs() < 1.4, e, torch.exp(x.double()))
    return (y / y.sum(dim=-1, keepdim=True)).float()
"""

CHEATS = [
    Cheat("no maximum", "range", "exp without the row's maximum overflows at 89", NO_MAXIMUM),
    Cheat("table of exp", "range", "exp comes from a table of steps of 1/1024 that ends at 32", TABLE),
    Cheat("maximum of some columns", "range", "only 64 columns are searched for the maximum", SAMPLED_MAXIMUM),
    Cheat("exp by squaring", "range", "small values go through a power of 4096, large ones overflow without a maximum",
          SQUARED),
]  # fmt: skip
