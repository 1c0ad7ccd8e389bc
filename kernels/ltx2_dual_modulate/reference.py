"""What right means for ltx2_dual_modulate, and what there is to beat.

One RMSNorm of x with two modulations, (y0, y1), as production runs it under autocast, which computes the norm in fp32.
`from_temb` adds a learned table to an embedding of the timestep first. So the modulation is rounded to its dtype at
every step, 1 + scale too, while products and sums with the norm are fp32, and so are the outputs.
"""

from __future__ import annotations

import math

import torch

EXPLICIT, FROM_TEMB = "explicit", "from_temb"
PARTS = ("scale0", "shift0", "scale1", "shift1")
ROWS = {
    "B1D": lambda batch, tokens: (batch, 1),
    "BSD": lambda batch, tokens: (batch, tokens),
    "BD": lambda batch, tokens: (batch,),
}


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """Explicit modulations are slices of a packed row. `layout` is their shape, and that of the embedding; `gap` leaves
    that many elements after every row of x and of the packed rows, `start` begins both that many elements late."""
    generator = torch.Generator(device=device).manual_seed(seed)
    batch, tokens, cols, dtype = case["batch"], case["tokens"], case["cols"], case["dtype"]
    modulation_dtype = case.get("modulation_dtype", dtype)
    start, gap = case.get("start", 0), case.get("gap", 0)

    def draw(shape, dtype, width, middle=0.0):
        *rows, cols = shape
        size = start + math.prod(rows) * (cols + gap)
        flat = torch.randn(size, generator=generator, device=device) * width + middle
        return flat.to(getattr(torch, dtype))[start:].view(*rows, cols + gap)[..., :cols]

    x = draw((batch, tokens, cols), dtype, spread, offset)
    packed = draw((*ROWS[case.get("layout", "B1D")](batch, tokens), 4 * cols), modulation_dtype, 0.3)
    if case["variant"] == EXPLICIT:
        modulation = dict(zip(PARTS, packed.split(cols, dim=-1), strict=True))
    else:
        table = torch.randn(4, cols, generator=generator, device=device) * 0.3
        table = table.to(getattr(torch, case.get("table_dtype", modulation_dtype)))
        modulation = {"temb_scale_shift": packed, "scale_shift_table": table}
    return {"variant": case["variant"], "x": x, **modulation, "eps": case["eps"]}


def ltx2_dual_modulate(variant, x, eps, **modulation):
    normal = torch.nn.functional.rms_norm(x.float(), x.shape[-1:], eps=eps)
    scale0, shift0, scale1, shift1 = _parts(variant, **modulation)
    return normal * (1 + scale0) + shift0, normal * (1 + scale1) + shift1


def truth(variant, x, eps, **modulation):
    """In float64, but for the modulation, which is rounded to its dtype: that is part of the contract."""
    wide = x.double()
    normal = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    scale0, shift0, scale1, shift1 = _parts(variant, **modulation)
    first = normal * (1 + scale0).double() + shift0.double()
    return first, normal * (1 + scale1).double() + shift1.double()


def _parts(variant, temb_scale_shift=None, scale_shift_table=None, **explicit):
    if variant == FROM_TEMB:
        embedding = temb_scale_shift.unflatten(-1, scale_shift_table.shape)
        parts = (scale_shift_table.to(embedding.dtype) + embedding).unbind(-2)
    else:
        parts = [explicit[name] for name in PARTS]
    return [part.unsqueeze(1) if part.dim() == 2 else part for part in parts]


def traffic(case):
    """Bytes read, bytes written, flops of one call: x and the modulation in once, two fp32 for every element out."""
    batch, tokens, cols, dtype = case["batch"], case["tokens"], case["cols"], case["dtype"]
    elements, modulation_dtype = batch * tokens * cols, case.get("modulation_dtype", dtype)
    packed = 4 * cols * math.prod(ROWS[case.get("layout", "B1D")](batch, tokens))
    read = elements * getattr(torch, dtype).itemsize + packed * getattr(torch, modulation_dtype).itemsize
    if case["variant"] == FROM_TEMB:
        read += 4 * cols * getattr(torch, case.get("table_dtype", modulation_dtype)).itemsize
    return read, 8 * elements, 7 * elements
