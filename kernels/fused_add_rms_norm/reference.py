"""What right means for fused_add_rms_norm, and what there is to beat.

The step between two layers of a language model, in place: residual += x; x = rms_norm(residual) * weight. Serving
engines differ in what is normalised: vLLM's CUDA kernel takes the sum as it was rounded for the residual stream and
rounds once more before the gain; vLLM's own PyTorch version and FlashInfer take the unrounded fp32 sum. Here it is the
unrounded sum, rounded once into each result: no further from the exact result than any of them.
"""

from __future__ import annotations

import torch

EPS = 1e-6


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`gap` leaves so many elements between the rows of x, `start` begins both buffers so many elements late."""
    generator = torch.Generator(device=device).manual_seed(seed)
    tokens, cols, dtype = case["tokens"], case["cols"], getattr(torch, case["dtype"])

    def rows(width, middle, gap):
        start = case.get("start", 0)
        values = torch.randn(start + tokens * (cols + gap), generator=generator, device=device) * width + middle
        return values.to(dtype)[start:].view(tokens, cols + gap)[:, :cols]

    weight = 1.0 + 0.1 * torch.randn(cols, generator=generator, device=device)
    return {
        "x": rows(spread, offset, case.get("gap", 0)),
        "residual": rows(2.0 * spread, offset, 0),  # the stream of many layers is larger than what one adds to it
        "weight": weight.to(dtype),
        "eps": EPS,
    }


def fused_add_rms_norm(x, residual, weight, eps):
    wide = torch.promote_types(x.dtype, torch.float32)
    summed = x.to(wide) + residual.to(wide)
    normal = summed * torch.rsqrt(summed.square().mean(dim=-1, keepdim=True) + eps)
    residual.copy_(summed)
    x.copy_(normal * weight.to(wide))


def traffic(case):
    """Bytes read, bytes written, flops of one call: x and residual in and out once, the gain once."""
    elements, size = case["tokens"] * case["cols"], getattr(torch, case["dtype"]).itemsize
    return (2 * elements + case["cols"]) * size, 2 * elements * size, 5 * elements
