"""What right means for ltx2_rms_adaln, and what there is to beat.

Production runs `rms_norm(x) * (1 + scale) + shift` under autocast, which computes the norm in fp32. So 1 + scale is
rounded to the dtype of scale, product and sum are fp32, and so is the output.
"""

from __future__ import annotations

import math

import torch

SHAPES = {
    "BSD": lambda batch, tokens, cols: (batch, tokens, cols),
    "B1D": lambda batch, tokens, cols: (batch, 1, cols),
    "BD": lambda batch, tokens, cols: (batch, cols),
    "D": lambda batch, tokens, cols: (cols,),
}


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`layout` is the shape of scale and shift, `gap` leaves so many elements behind every row of all tensors, `start`
    begins them so many elements into their buffers."""
    generator = torch.Generator(device=device).manual_seed(seed)
    sizes, dtype = (case["batch"], case["tokens"], case["cols"]), case["dtype"]
    start, gap = case.get("start", 0), case.get("gap", 0)

    def draw(shape, dtype, width=1.0, middle=0.0):
        *rows, cols = shape
        size = start + math.prod(rows) * (cols + gap)
        flat = torch.randn(size, generator=generator, device=device) * width + middle
        return flat.to(getattr(torch, dtype))[start:].view(*rows, cols + gap)[..., :cols]

    modulation = SHAPES[case.get("layout", "BSD")](*sizes), case.get("modulation_dtype", dtype)
    return {
        "x": draw(sizes, dtype, spread, offset),
        "scale": draw(*modulation, 0.3),
        "shift": draw(*modulation),
        "eps": case["eps"],
    }


def ltx2_rms_adaln(x, scale, shift, eps):
    normal = torch.nn.functional.rms_norm(x.float(), x.shape[-1:], eps=eps)
    return normal * (1 + _by_token(scale)) + _by_token(shift)


def truth(x, scale, shift, eps):
    """In float64, but for 1 + scale, which is rounded to the dtype of scale: that is part of the contract."""
    wide = x.double()
    normal = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return normal * (1 + _by_token(scale)).double() + _by_token(shift).double()


def _by_token(modulation):
    return modulation.unsqueeze(1) if modulation.dim() == 2 else modulation


def traffic(case):
    """Bytes read, bytes written, flops of one call: x, scale and shift in once, four bytes out for every element."""
    sizes, dtype = (case["batch"], case["tokens"], case["cols"]), case["dtype"]
    elements, modulation = math.prod(sizes), 2 * math.prod(SHAPES[case.get("layout", "BSD")](*sizes))
    of_modulation = getattr(torch, case.get("modulation_dtype", dtype)).itemsize
    return elements * getattr(torch, dtype).itemsize + modulation * of_modulation, 4 * elements, 6 * elements
