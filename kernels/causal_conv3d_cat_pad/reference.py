"""What right means for causal_conv3d_cat_pad, and what there is to beat.

What diffusers' causal 3-D convolutions do before they convolve: the last frames of the chunk before (cache) go in front
of the new ones, in the place of as many frames of zeros, and width and height are padded. Tensors are [N, C, T, H, W],
and padding is that of torch.nn.functional.pad: width, height, depth, two numbers each.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`x` is the shape, as 1x1024x1x30x52, and `cached` the frames of the cache. `starts` begins both so many elements
    into their buffers, and `layout` says how they lie there."""
    generator = torch.Generator(device=device).manual_seed(seed)
    batch, channels, frames, height, width = _shape(case)
    layout, dtype = case.get("layout", "contiguous"), getattr(torch, case["dtype"])

    def draw(frames, start):
        lying = {
            "contiguous": (batch, channels, frames, height, width),
            "transposed": (batch, channels, frames, width, height),
            "channels_last_3d": (batch, frames, height, width, channels),
        }[layout]
        values = torch.randn(start + math.prod(lying), generator=generator, device=device) * spread + offset
        block = values.to(dtype)[start:].view(lying)
        if layout == "transposed":
            return block.transpose(3, 4)
        return block if layout == "contiguous" else block.movedim(-1, 1)

    first, second = case.get("starts", (0, 0))
    return {"x": draw(frames, first), "cache": draw(case["cached"], second), "padding": list(case["padding"])}


def causal_conv3d_cat_pad(x, cache, padding):
    missing = list(padding)
    if cache is not None and cache.shape[2]:
        missing[4] -= cache.shape[2]
        x = torch.cat([cache, x], dim=2)
    return F.pad(x, missing).contiguous()


def truth(x, cache, padding):
    """Values move and never change, so the entry's own dtype is wide enough."""
    return causal_conv3d_cat_pad(x, cache, padding)


def traffic(case):
    """Bytes read, bytes written: both inputs once, the padded block once."""
    batch, channels, frames, height, width = _shape(case)
    left, right, top, bottom, front, back = case["padding"]
    size = batch * channels * getattr(torch, case["dtype"]).itemsize
    written = (frames + front + back) * (height + top + bottom) * (width + left + right)
    return size * (frames + case["cached"]) * height * width, size * written


def _shape(case):
    return tuple(int(extent) for extent in case["x"].split("x"))
