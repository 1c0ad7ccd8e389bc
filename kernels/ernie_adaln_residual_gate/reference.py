"""What right means for ernie_adaln_residual_gate, and what there is to beat.

The expressions of an ERNIE-Image block in the dtype of its tensors: every step is rounded, only the statistics of the
RMSNorm are fp32. `self_attention_adaln` and `mlp_residual_gate` give out, `attention_residual_mlp_adaln` gives
(out, residual_out), where the norm is that of the rounded residual_out.
"""

from __future__ import annotations

import torch

EPS = 1e-6
SELF, RESIDUAL, GATE = "self_attention_adaln", "attention_residual_mlp_adaln", "mlp_residual_gate"


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """Modulation vectors are slices of a packed row of `chunks`; tensors begin `start` elements into their buffers."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype, cols, start = getattr(torch, case["dtype"]), case["cols"], case.get("start", 0)
    shape = (case.get("batch", 1), case["tokens"], cols)

    def activation():
        size = start + torch.Size(shape).numel()
        flat = torch.randn(size, generator=generator, device=device) * spread + offset
        return flat.to(dtype)[start:].view(shape)

    chunks = case.get("chunks", 3)
    packed = torch.randn(1, 1, start + chunks * cols, generator=generator, device=device).to(dtype)[..., start:]
    shift, scale, gate = (packed[..., index * cols : (index + 1) * cols] for index in range(3))
    weight = (1.0 + 0.1 * torch.randn(cols, generator=generator, device=device)).to(dtype)
    norm = {"weight": weight, "scale": scale.mul_(0.3), "shift": shift, "eps": EPS}
    sums = {"residual": activation(), "update": activation(), "gate": gate.mul_(0.5)}
    return {
        "variant": case["variant"],
        **({"x": activation()} if case["variant"] == SELF else sums),
        **(norm if case["variant"] != GATE else {}),
    }


def ernie_adaln_residual_gate(variant, x=None, residual=None, update=None, gate=None, **norm):
    if variant == SELF:
        return _modulated(x, torch.float32, **norm)
    summed = residual + gate * update
    return summed if variant == GATE else (_modulated(summed, torch.float32, **norm), summed)


def truth(variant, **operands):
    """The same in float64: no step is rounded."""
    wide = {name: value.double() if torch.is_tensor(value) else value for name, value in operands.items()}
    if variant == SELF:
        return _modulated(wide.pop("x"), torch.float64, **wide)
    summed = wide.pop("residual") + wide.pop("gate") * wide.pop("update")
    return summed if variant == GATE else (_modulated(summed, torch.float64, **wide), summed)


def _modulated(x, statistics, weight, scale, shift, eps):
    inverse = torch.rsqrt(x.to(statistics).square().mean(dim=-1, keepdim=True) + eps)
    normal = (x * inverse).to(x.dtype) * weight
    return normal * (1 + scale) + shift


def traffic(case):
    """Bytes read, bytes written, flops of one call: every operand in once, every result out once."""
    full = case.get("batch", 1) * case["tokens"] * case["cols"]
    size, variant = getattr(torch, case["dtype"]).itemsize, case["variant"]
    streams, vectors, results, flops = {SELF: (1, 3, 1, 7), RESIDUAL: (2, 4, 2, 9), GATE: (2, 1, 1, 2)}[variant]
    return (streams * full + vectors * case["cols"]) * size, results * full * size, flops * full
