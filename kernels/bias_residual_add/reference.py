"""What right means for bias_residual_add, and what there is to beat: the sum in fp32, rounded once."""

from __future__ import annotations

import torch


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`x` is NxCx...; `layout` contiguous or last; `start`: how many elements into its buffer a tensor begins."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shape, dtype, start = _shape(case), getattr(torch, case["dtype"]), case.get("start", 0)

    def drawn(shape):
        size = start + torch.Size(shape).numel()
        flat = torch.randn(size, generator=generator, device=device) * spread + offset
        return flat.to(dtype)[start:].view(shape)

    def placed():
        if case.get("layout", "contiguous") == "contiguous":
            return drawn(shape)
        return drawn((shape[0], *shape[2:], shape[1])).movedim(-1, 1)

    return {"x": placed(), "bias": drawn(shape[1:2]), "residual": placed(), "divisor": case.get("divisor", 1.0)}


def bias_residual_add(x, bias, residual, divisor):
    return _summed(torch.float32, x, bias, residual, divisor).to(x.dtype)


def truth(x, bias, residual, divisor):
    return _summed(torch.float64, x, bias, residual, divisor)


def _summed(wide, x, bias, residual, divisor):
    by = bias.to(wide).view(-1, *[1] * (x.dim() - 2))
    return (residual.to(wide) + (x.to(wide) + by)) / divisor


def traffic(case):
    """Bytes read, bytes written, flops: x and residual in once, the sum out once, and the bias."""
    shape, size = torch.Size(_shape(case)), getattr(torch, case["dtype"]).itemsize
    full = shape.numel()
    return (2 * full + shape[1]) * size, full * size, 2 * full


def _shape(case):
    return tuple(int(length) for length in case["x"].split("x"))
