"""What right means for my_kernel, and what there is to beat."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """The arguments of the entry by name; `case` is the axes table of one case."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shape, dtype = (case["rows"], case["cols"]), getattr(torch, case["dtype"])
    gate = torch.randn(shape, generator=generator, device=device) * spread + offset
    up = torch.randn(shape, generator=generator, device=device) * spread + offset
    return {"gate": gate.to(dtype), "up": up.to(dtype)}


def my_kernel(gate, up):
    """The maths as production runs it: fp32 inside, one rounding at the end."""
    return (F.silu(gate.float()) * up.float()).to(gate.dtype)


def truth(gate, up):
    """The same without rounding; only errors are measured against it."""
    return F.silu(gate.double()) * up.double()
