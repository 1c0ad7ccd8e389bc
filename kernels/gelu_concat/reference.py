"""What right means for gelu_concat, and what there is to beat.

The single-stream blocks of FLUX.1 and HunyuanVideo project both halves at once: attention's output, and the MLP's
hidden values through GELU in its tanh form. torch's GELU computes in fp32 and rounds once, whatever the tensor's dtype.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`gap` leaves so many elements between the rows of both tensors, `start` begins both so many late."""
    generator = torch.Generator(device=device).manual_seed(seed)
    batch, tokens, gap, start = case.get("batch", 1), case["tokens"], case.get("gap", 0), case.get("start", 0)

    def draw(cols):
        values = torch.randn(start + batch * tokens * (cols + gap), generator=generator, device=device)
        values = values.mul_(spread).add_(offset).to(getattr(torch, case["dtype"]))
        return values[start:].view(batch, tokens, cols + gap)[..., :cols]

    return {"attended": draw(case["attended"]), "mlp": draw(case["mlp"])}


def gelu_concat(attended, mlp):
    return torch.cat([attended, F.gelu(mlp, approximate="tanh")], dim=-1)


def truth(attended, mlp):
    return torch.cat([attended.double(), F.gelu(mlp.double(), approximate="tanh")], dim=-1)


def traffic(case):
    """Bytes read, bytes written, flops of one call: both in once, the rows of both out once."""
    rows, size = case.get("batch", 1) * case["tokens"], getattr(torch, case["dtype"]).itemsize
    moved = rows * (case["attended"] + case["mlp"]) * size
    return moved, moved, 8 * rows * case["mlp"]
