"""What right means for fuse_scale_shift, and what there is to beat.

Three variants of one entry: `scale_shift` gives y; `layernorm_gate_select01` gives (y, gate_out);
`residual_layernorm_gate_select01` gives (y, residual_out, gate_out).
"""

from __future__ import annotations

import torch

EPS = 1e-6
SETS = ("scale0", "shift0", "gate0", "scale1", "shift1", "gate1")
SHAPES = {
    "scalar": lambda batch, tokens, cols: (),
    "[1,C]": lambda batch, tokens, cols: (1, cols),
    "[B,C]": lambda batch, tokens, cols: (batch, cols),
    "[1,1,C]": lambda batch, tokens, cols: (1, 1, cols),
    "[B,1,C]": lambda batch, tokens, cols: (batch, 1, cols),
    "[1,L,C]": lambda batch, tokens, cols: (1, tokens, cols),
    "[B,L,C]": lambda batch, tokens, cols: (batch, tokens, cols),
    "[B,F,1,C]": lambda batch, tokens, cols: (batch, frames(tokens), 1, cols),
}


def frames(tokens):
    return next((count for count in (3, 4, 2) if tokens % count == 0), 1)


def spelled_out(case):
    """The axes of a case, with what `form` stands for."""
    if "form" not in case:
        return case
    variant, *rest = case["form"].split()
    if variant == "scale_shift":
        return {**case, "variant": variant, "scale": rest[0], "shift": rest[1], "scale_constant": float(rest[2])}
    return {**case, "variant": variant, "affine": rest[0] == "affine", "index_dtype": rest[1]}


class Draws:
    """Random tensors of one seed."""

    def __init__(self, seed, device):
        self.device, self.generator = device, torch.Generator(device=device).manual_seed(seed)

    def normal(self, shape, dtype, spread=1.0, offset=0.0):
        values = torch.randn(shape, generator=self.generator, device=self.device)
        return values.mul_(spread).add_(offset).to(dtype)

    def sliced(self, shape, dtype, chunks, spread):
        """Rows of a packed buffer of `chunks` such tensors side by side, from the second chunk on."""
        if chunks == 1:
            return self.normal(shape, dtype, spread)
        cols = shape[-1]
        if shape[-2] == 1 and len(shape) > 2:  # the chunks lie along the dimension of size 1
            packed = torch.zeros((*shape[:-2], chunks, cols), dtype=dtype, device=self.device)
            view = packed[..., 1:2, :]
        else:
            packed = torch.zeros((*shape[:-1], chunks * cols), dtype=dtype, device=self.device)
            view = packed[..., cols : 2 * cols]
        return view.copy_(self.normal(shape, dtype, spread))


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    case, draws = spelled_out(case), Draws(seed, device)
    sizes = case["batch"], case["tokens"], case["cols"]
    dtype = getattr(torch, case["dtype"])
    made = {"variant": case["variant"], "x": draws.normal(sizes, dtype, spread, offset)}
    if case["variant"] == "scale_shift":
        scale_dtype = getattr(torch, case.get("scale_dtype", case["dtype"]))
        scale_shape, shift_shape = SHAPES[case["scale"]](*sizes), SHAPES[case["shift"]](*sizes)
        made["scale"] = draws.sliced(scale_shape, scale_dtype, case.get("scale_chunks", 1), 0.3)
        made["shift"] = draws.normal(shift_shape, dtype)
        return {**made, "scale_constant": float(case["scale_constant"])}
    if case["variant"] == "residual_layernorm_gate_select01":
        made["residual"] = draws.normal(sizes, dtype, spread, offset)
        made["residual_gate"] = draws.normal(sizes, dtype, 0.3)
    vector = (case["batch"], case["cols"])
    if case["affine"]:
        made["weight"] = draws.normal(vector[1:], dtype, 0.1, 1.0)
        made["bias"] = draws.normal(vector[1:], dtype, 0.1)
    for name in SETS:
        spread_of_it = 1.0 if name.startswith("shift") else 0.3
        made[name] = draws.sliced(vector, dtype, case.get("set_chunks", 1), spread_of_it)
    coin = torch.rand(sizes[:2], generator=draws.generator, device=device) < 0.5
    return {**made, "index": coin.to(getattr(torch, case["index_dtype"])), "eps": EPS}


def fuse_scale_shift(variant, x, **operands):
    y, *others = _computed(torch.float32, variant, x, **operands)
    if not others:
        return y.to(x.dtype)
    *values, gate_out = y, *others  # the gate is a copy, in its own dtype
    return *(value.to(x.dtype) for value in values), gate_out


def truth(variant, x, **operands):
    outputs = _computed(torch.float64, variant, x, **operands)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _computed(wide, variant, x, **operands):
    if variant == "scale_shift":
        scale, shift = (_per_token(operands[name].to(wide), x.shape[1]) for name in ("scale", "shift"))
        return [x.to(wide) * (operands["scale_constant"] + scale) + shift]
    return _select01(wide, x, **operands)


def _per_token(operand, tokens):
    """An operand in a shape that broadcasts over [B, L, C]."""
    if operand.dim() == 2:
        return operand[:, None, :]
    if operand.dim() == 4:
        batch, count, _, cols = operand.shape
        return operand.expand(batch, count, tokens // count, cols).reshape(batch, tokens, cols)
    return operand


def _select01(wide, x, index, eps, residual=None, residual_gate=None, weight=None, bias=None, **sets):
    second = index.bool()[:, :, None]
    scale, shift, gate = (
        torch.where(second, sets[name + "1"][:, None, :], sets[name + "0"][:, None, :])
        for name in ("scale", "shift", "gate")
    )
    value = x.to(wide)
    if residual is not None:
        value = residual.to(wide) + residual_gate.to(wide) * value
    centred = value - value.mean(dim=-1, keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    normal = normal if weight is None else normal * weight.to(wide)
    normal = normal if bias is None else normal + bias.to(wide)
    y = normal * (1.0 + scale.to(wide)) + shift.to(wide)
    return [y, gate] if residual is None else [y, value, gate]


def traffic(case):
    """Bytes read, bytes written, flops of one call: every element in once and out once."""
    case = spelled_out(case)
    sizes = case["batch"], case["tokens"], case["cols"]
    size, full = getattr(torch, case["dtype"]).itemsize, torch.Size(sizes).numel()
    if case["variant"] == "scale_shift":
        scale_size = getattr(torch, case.get("scale_dtype", case["dtype"])).itemsize
        scale, shift = (torch.Size(SHAPES[case[name]](*sizes)).numel() for name in ("scale", "shift"))
        return (full + shift) * size + scale * scale_size, full * size, 3 * full
    index = case["batch"] * case["tokens"] * getattr(torch, case["index_dtype"]).itemsize
    vectors = 6 * case["batch"] * case["cols"] + (2 * case["cols"] if case["affine"] else 0)
    inputs, outputs = (3, 3) if case["variant"].startswith("residual") else (1, 2)
    return (inputs * full + vectors) * size + index, outputs * full * size, (8 + 2 * (inputs > 1)) * full
