"""RMSNorm with gain and modulation before attention, that of a gated residual sum before the MLP, and the sum alone.

Every step is rounded to the dtype of the tensors, as eager torch rounds it: an image that was made with fewer roundings
is another image. Statistics are fp32, those of the rounded sum where there is one.

CUDA C++ (solution.cu) where rows are whole 16-byte vectors, Triton (portable.py) elsewhere and on a CPU. What the form
of the arguments decides, is decided once and kept.
"""

from __future__ import annotations

import portable
import torch

from harness.cuda import Plans, load, outputs_like

SELF, RESIDUAL, GATE = "self_attention_adaln", "attention_residual_mlp_adaln", "mlp_residual_gate"
IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
LONGEST_ROW = 64 * 1024
"""Bytes of a row that a program can hold between its statistics and its output."""
NEAREST_WARPS = 4
"""Warps of a row where there are many: blocks of few wait less at their barrier, and more rows are in flight."""
MOST_VECTORS = 5
"""Of a thread, where more warps would share the row as evenly."""
LARGEST_BLOCK, BLOCKS_OF_FEW_ROWS = 1024, 100
"""Of the sum alone: few rows are fastest as one wave of large blocks."""
ROWS_EACH, MANY_BYTES = 2, 32 << 20
"""Of a thread of the sum alone, and bytes of the residual from which on it keeps its part of the gate for so many."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def ernie_adaln_residual_gate(
    variant, x=None, residual=None, update=None, gate=None, weight=None, scale=None, shift=None, eps=1e-6
):
    """out; of the residual variant (out, residual_out)."""
    if variant == SELF:
        tensors, first = (x, weight, scale, shift), x
    elif variant == RESIDUAL:
        tensors, first = (residual, update, gate, weight, scale, shift), residual
    elif variant == GATE:
        tensors, first = (residual, update, gate), residual
    else:
        raise ValueError(f"variant {variant!r} is none of {SELF}, {RESIDUAL} and {GATE}")
    if _SEVERAL_GPUS and first is not None and first.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(first.get_device()):
            return _called(variant, tensors, eps)
    return _called(variant, tensors, eps)


def _called(variant, tensors, eps):
    try:
        key = variant, tensors[0].shape
        places = [tensor.data_ptr() for tensor in tensors]
    except AttributeError:
        missing = [name for name, tensor in zip(_names(variant), tensors, strict=True) if tensor is None]
        raise ValueError(f"{variant} needs {', '.join(missing)}") from None
    for same_form, launch, output in _plans.get(key, ()):
        if same_form(*tensors):
            together = 0
            for place in places:
                together |= place
            if launch is None or together & 15:
                return _in_triton(variant, tensors, eps)
            out = output()
            if variant == GATE:
                launch(*places, out.data_ptr())
                return out
            if variant == SELF:
                launch(places[0], 0, 0, *places[1:], out.data_ptr(), 0, eps)
                return out
            residual_out = output()
            launch(*places, out.data_ptr(), residual_out.data_ptr(), eps)
            return out, residual_out
    _plans.keep(key, tensors, _plan(variant, tensors))
    return _called(variant, tensors, eps)


def _names(variant):
    sums, norm = ("residual", "update", "gate"), ("weight", "scale", "shift")
    return {SELF: ("x", *norm), RESIDUAL: (*sums, *norm), GATE: sums}[variant]


def _in_triton(variant, tensors, eps):
    if variant == SELF:
        x, *norm = tensors
        return portable.rows_of(x, None, None, *norm, eps)
    residual, update, gate, *norm = tensors
    return portable.rows_of(residual, update, gate, *(norm or (None, None, None)), eps)


def _plan(variant, tensors):
    """The launch for arguments of this form and what makes an output; no launch where only Triton will do."""
    named = dict(zip(_names(variant), tensors, strict=True))
    _check(variant, named)
    first = tensors[0]
    cols, width = first.shape[-1], 16 // first.element_size()
    rows = first.numel() // max(cols, 1)
    if not first.is_cuda or cols % width or not 0 < rows < 2**31 or rows * cols >= width << 31:
        return None, None
    output, kind = outputs_like(first, torch.contiguous_format), IN_CUDA[first.dtype]
    if variant == GATE:
        vectors, threads = rows * cols // width, cols // width
        if 64 <= threads <= LARGEST_BLOCK and rows * cols * first.element_size() >= MANY_BYTES:
            kernel = _CU.get(f"gated_rows<{kind}, {cols}, {ROWS_EACH}>")
            start_rows = kernel.prepared(-(-rows // ROWS_EACH), threads, (int,) * 5)
            return lambda *places: start_rows(*places, rows), output
        threads = min(LARGEST_BLOCK, -(-vectors // (BLOCKS_OF_FEW_ROWS * 128)) * 128)
        start = _CU.get(f"gated_sum<{kind}, {cols}>").prepared(-(-vectors // threads), threads, (int,) * 5)
        return lambda *places: start(*places, vectors), output
    processors = torch.cuda.get_device_properties(first.device).multi_processor_count
    warps, blocks = _shares(rows, cols // width, processors)
    name = f"modulated_rows<{kind}, {cols}, {warps}, {blocks}, {str(variant == RESIDUAL).lower()}>"
    return _CU.get(name).prepared(rows, warps * 32, (*[int] * 8, float)), output


def _shares(rows, vectors, processors):
    """Warps that take a row, and blocks of a multiprocessor. Few rows are all latency: a vector to a thread."""
    if rows <= 2 * processors:
        return min(32, -(-vectors // 32)), 1
    each = {warps: -(-vectors // (warps * 32)) for warps in range(1, 17)}
    idle = {warps: (-vectors % (warps * 32)) * 16 // vectors for warps in each}  # in sixteenths
    able = [warps for warps in each if each[warps] <= 8]
    warps = min(able, key=lambda n: (idle[n], each[n] > MOST_VECTORS, n % 4 > 0, abs(n - NEAREST_WARPS)))
    registers = 32 + 8 * each[warps] if each[warps] <= 6 else 112  # what ptxas needs without spilling
    return warps, max(1, min(32, 2048 // (warps * 32), 65536 // (registers * 128 * -(-warps // 4))))


def _check(variant, named):
    (leading, first), *_ = named.items()
    if first.dim() != 3 or first.dtype not in IN_CUDA:
        raise ValueError(
            f"{leading} must be [B, S, D] of a float dtype up to 32 bits, not {list(first.shape)} of {first.dtype}"
        )
    cols = first.shape[2]
    if variant != GATE and cols * first.element_size() > LONGEST_ROW:
        raise ValueError(
            f"{leading} has rows of {cols} {first.dtype}; a row must not be longer than {LONGEST_ROW} bytes"
        )
    wanted = {"update": tuple(first.shape), "weight": (cols,)}
    for name, tensor in named.items():
        shape = wanted.get(name, (1, 1, cols) if name != leading else tuple(first.shape))
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")
        if tensor.dtype != first.dtype or tensor.device != first.device:
            here = f"{first.dtype} on {first.device}"
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, but {leading} {here}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} has strides {tensor.stride()} for shape {list(tensor.shape)}; pass it contiguous")
