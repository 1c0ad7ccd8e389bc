"""AdaLN front end: y = norm(v) * (1 + scale) + shift by rows; v is x, or residual + gate * x, then returned too.

On a GPU a kernel of solution.cu (chosen in cuda_rows.py) reads every row once and keeps it in registers between
statistics and output, by vectors of 16 bytes or as many as width, strides and addresses allow. Rows with gaps between
them, columns that are not adjacent, more than 8192 of them, and the CPU take the Triton one (triton_rows.py).
What a call needs is worked out once for every form of the arguments and kept: small calls are all launch.
"""

from __future__ import annotations

import functools
import operator

import torch
from cuda_rows import WIDEST, launch
from modulation import spread
from triton_rows import norm_rows

from harness.cuda import Plans, outputs_like

PLAIN, RESIDUAL = "norm_scale_shift", "residual_gate_norm_scale_shift"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def norm_scale_shift(x, residual, gate, weight, bias, scale, shift, variant, norm_type, eps):
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return norm_scale_shift(x, residual, gate, weight, bias, scale, shift, variant, norm_type, eps)
    if scale is None or shift is None:
        raise ValueError("scale and shift must be given")
    if residual is None:
        given = x, scale, shift  # a gate would be refused
    elif gate is None:
        given = x, scale, shift, residual
    else:
        given = x, scale, shift, residual, gate
    if weight is not None:
        given += (weight,)
    if bias is not None:
        given += (bias,)
    key = x.shape, variant, norm_type, residual is None, gate is None, weight is None, bias is None
    for same_form, call in _plans.get(key, ()):
        if same_form(*given):
            return call(x, residual, gate, weight, bias, scale, shift, eps)
    _plans.keep(key, given, (_call(x, residual, gate, weight, bias, scale, shift, variant, norm_type),))
    return norm_scale_shift(x, residual, gate, weight, bias, scale, shift, variant, norm_type, eps)


def _call(x, residual, gate, weight, bias, scale, shift, variant, norm_type):
    """What to do with calls like this one; everything that can be wrong with them is said here."""
    operands = {"gate": gate, "weight": weight, "bias": bias, "scale": scale, "shift": shift}
    _check(x, residual, operands, variant, norm_type)
    spreads = [None if value is None else spread(name, value, *x.shape) for name, value in operands.items()]
    return _launched((x, residual, *operands.values()), spreads, norm_type == "layer", WIDEST)


def _launched(tensors, spreads, layer, aligned):
    """The call for tensors like these at addresses that are multiples of `aligned`."""
    x, residual, *operands = tensors
    found = None
    if x.numel() and x.is_cuda:
        found = launch(x, residual, operands, spreads, layer, aligned)
    if found is None:
        return functools.partial(norm_rows, spreads=spreads, layer=layer)
    elsewhere = _elsewhere(functools.partial(_launched, spreads=spreads, layer=layer))
    return LAUNCHED[found.kernel](elsewhere, found, outputs_like(x))


def _elsewhere(launched):
    """The call for addresses that such vectors cannot be read from: with the longest that can."""
    calls = {}

    def call(*arguments):
        *tensors, eps = arguments
        bits = functools.reduce(operator.or_, (tensor.data_ptr() for tensor in tensors if tensor is not None))
        aligned = bits & -bits
        if aligned not in calls:
            calls[aligned] = launched(tensors, aligned=aligned)
        return calls[aligned](*tensors, eps)

    return call


def _check(x, residual, operands, variant, norm_type):
    if variant not in (PLAIN, RESIDUAL):
        raise ValueError(f"variant {variant!r} is neither {PLAIN!r} nor {RESIDUAL!r}")
    if norm_type not in ("layer", "rms"):
        raise ValueError(f"norm_type {norm_type!r} is neither 'layer' nor 'rms'")
    if x.dim() != 3 or x.dtype not in DTYPES:
        raise ValueError(f"x must be [B, S, D] of float16, bfloat16 or float32, not {list(x.shape)} of {x.dtype}")
    if variant == PLAIN and (residual is not None or operands["gate"] is not None):
        raise ValueError(f"{PLAIN} takes no residual and no gate")
    if variant == RESIDUAL and (residual is None or residual.shape != x.shape or residual.dtype != x.dtype):
        raise ValueError(f"residual must be of x's shape {list(x.shape)} and {x.dtype}")
    for name in ("weight", "bias"):
        if operands[name] is not None and operands[name].shape != x.shape[2:]:
            raise ValueError(f"{name} must be of shape [{x.shape[2]}], not {list(operands[name].shape)}")
    for name, value in (("residual", residual), *operands.items()):
        if value is not None and (value.dtype not in DTYPES or value.device != x.device):
            raise ValueError(f"{name} must be a float tensor on {x.device}, not {value.dtype} on {value.device}")


# Launches by addresses, which is the shortest way, wherever these are aligned for the vectors.


def _plain(elsewhere, found, output):
    start = found.start
    x_low, *_, scale_low, shift_low = found.low

    def call(x, residual, gate, weight, bias, scale, shift, eps):
        at, gain, offset = x.data_ptr(), scale.data_ptr(), shift.data_ptr()
        if at & x_low or gain & scale_low or offset & shift_low:
            return elsewhere(x, residual, gate, weight, bias, scale, shift, eps)
        y = output()
        start(at, gain, offset, y.data_ptr(), eps)
        return y

    return call


def _residual(elsewhere, found, output):
    start = found.start
    x_low, gate_low, *_, scale_low, shift_low = found.low

    def call(x, residual, gate, weight, bias, scale, shift, eps):
        at, stream, gain, offset = x.data_ptr(), residual.data_ptr(), scale.data_ptr(), shift.data_ptr()
        by = 0 if gate is None else gate.data_ptr()
        if (at | stream) & x_low or by & gate_low or gain & scale_low or offset & shift_low:
            return elsewhere(x, residual, gate, weight, bias, scale, shift, eps)
        y, summed = output(), output()
        start(at, stream, by, gain, offset, y.data_ptr(), summed.data_ptr(), eps)
        return y, summed

    return call


def _any(elsewhere, found, output):
    start, layout, (x_low, *low) = found.start, found.layout, found.low

    def call(x, residual, gate, weight, bias, scale, shift, eps):
        at, stream = x.data_ptr(), 0 if residual is None else residual.data_ptr()
        operands = (gate, weight, bias, scale, shift)
        places = [0 if operand is None else operand.data_ptr() for operand in operands]
        if (at | stream) & x_low or any(address & bits for address, bits in zip(places, low, strict=True)):
            return elsewhere(x, residual, *operands, eps)
        y = output()
        summed = None if residual is None else output()
        start(at, stream, *places, y.data_ptr(), 0 if summed is None else summed.data_ptr(), eps, *layout)
        return y if summed is None else (y, summed)

    return call


LAUNCHED = {"plain_row": _plain, "residual_row": _residual, "any_row": _any}
