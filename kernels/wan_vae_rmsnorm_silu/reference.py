"""What right means for wan_vae_rmsnorm_silu, and what there is to beat.

The norm and the activation in front of every convolution of Wan's video decoder, as diffusers has them: F.normalize
over the channels, in fp32 for 16-bit tensors, then times sqrt(C), times gamma, plus bias and SiLU, each rounded to the
tensor's dtype. The exact result rounds nothing, and a kernel has to be no further from it than this chain.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

ORDERS = {"contiguous": (0, 1, 2, 3, 4), "frames": (0, 2, 1, 3, 4), "channels_last_3d": (0, 2, 3, 4, 1)}
"""By layout, the dimensions of [B, C, T, H, W] as they lie in memory. The decoder's upsampling leaves `frames`."""


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`x` is the shape, as 1x96x4x384x640, drawn as it lies in memory; `start` begins it so many elements late."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shape, order, dtype = _shape(case), ORDERS[case["layout"]], getattr(torch, case["dtype"])
    start = case.get("start", 0)
    lying = torch.randn(start + math.prod(shape), generator=generator, device=device) * spread + offset
    lying = lying.to(dtype)[start:].view([shape[dim] for dim in order])
    gamma = 1.0 + 0.1 * torch.randn(shape[1], 1, 1, 1, generator=generator, device=device)
    bias = 0.1 * torch.randn(shape[1], 1, 1, 1, generator=generator, device=device)
    return {
        "x": lying.permute([order.index(dim) for dim in range(5)]),
        "gamma": gamma.to(dtype),
        "bias": bias.to(dtype) if case.get("bias") else None,
    }


def wan_vae_rmsnorm_silu(x, gamma, bias=None):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    normal = F.normalize(wide, dim=1).to(x.dtype) * x.shape[1] ** 0.5
    return F.silu(normal * gamma + (0.0 if bias is None else bias))


def truth(x, gamma, bias=None):
    return wan_vae_rmsnorm_silu(x.double(), gamma.double(), None if bias is None else bias.double())


def traffic(case):
    """Bytes read, bytes written, flops of one call: x in and out once, gain and offset once."""
    shape, size = _shape(case), getattr(torch, case["dtype"]).itemsize
    elements = math.prod(shape)
    return (elements + (1 + bool(case.get("bias"))) * shape[1]) * size, elements * size, 9 * elements


def _shape(case):
    return tuple(int(extent) for extent in case["x"].split("x"))
