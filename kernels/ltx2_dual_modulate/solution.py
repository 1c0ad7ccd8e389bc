"""LTX-2's two modulations of one RMSNorm: rms_norm(x) * (1 + scale) + shift twice, in fp32, from one read of x.

The four vectors are given, or made of an embedding and a learned table while they are read, rounded as production does.
CUDA C++ (solution.cu) wherever columns lie side by side, in vectors as wide as width, strides and addresses allow; so
odd widths are served by the same kernel. Triton (portable.py) for every other form and on a CPU. What a call needs is
worked out once for every form of the arguments and kept: the rows of audio are done in 3 us or less.
"""

from __future__ import annotations

import torch
from portable import modulated_rows, steps

from harness.cuda import Plans, load, outputs_like

EXPLICIT, FROM_TEMB = "explicit", "from_temb"
NAMES = {
    EXPLICIT: ("x", "scale0", "shift0", "scale1", "shift1"),
    FROM_TEMB: ("x", "temb_scale_shift", "scale_shift_table"),
}
IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
LONGEST_ROW = 32768
"""Columns that a Triton program holds."""
MOST_WORDS, MOST_WORDS_OF_FEW = 16, 8
"""Of four bytes that a thread holds of x where rows are many, and of any operand where they are few, all latency."""
NEAREST_WARPS, NEAREST_WARPS_OF_FEW = 8, 4
"""Warps of a row. Four are what torch's kernel has; with eight, a thread asks for half as much before it waits."""
REGISTERS, REGISTERS_OF_NARROW = 48, 32
"""Of a thread where rows are many, in addition to twice the words of x that it holds; the second where a vector has
fewer than four columns. They bound the rows in flight: with four of 4096 columns to a multiprocessor, reads and writes
disturb each other least. Narrow vectors need more of them."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def ltx2_dual_modulate(
    variant, x, scale0=None, shift0=None, scale1=None, shift1=None, temb_scale_shift=None, scale_shift_table=None,
    eps=1e-6,
):  # fmt: skip
    """(y0, y1), fp32 of x's shape, [B, S, D]; scales and shifts are [B, 1, D], [B, D], [B, S, D] or [D], an embedding
    the same with 4 * D columns, the table [4, D]."""
    if variant == EXPLICIT:
        tensors = x, scale0, shift0, scale1, shift1
    elif variant == FROM_TEMB:
        tensors = x, temb_scale_shift, scale_shift_table
    else:
        raise ValueError(f"variant {variant!r} is neither {EXPLICIT!r} nor {FROM_TEMB!r}")
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return _called(variant, tensors, eps)
    return _called(variant, tensors, eps)


def _called(variant, tensors, eps):
    try:
        places = [tensor.data_ptr() for tensor in tensors]
    except AttributeError:
        missing = [name for name, tensor in zip(NAMES[variant], tensors, strict=True) if tensor is None]
        raise ValueError(f"{variant} needs {', '.join(missing)}") from None
    key = variant, tensors[0].shape
    for same_form, launch, output, off_vectors, strides in _plans.get(key, ()):
        if same_form(*tensors):
            together = 0
            for place in places:
                together |= place
            if launch is None or together & off_vectors:
                return _in_triton(variant, *tensors, eps=eps)
            first, second = output(), output()
            launch(*places, first.data_ptr(), second.data_ptr(), *strides, float(eps))
            return first, second
    _plans.keep(key, tensors, _plan(variant, *tensors))
    return _called(variant, tensors, eps)


def _in_triton(variant, x, *modulation, eps):
    if variant == EXPLICIT:
        return modulated_rows(x, modulation, None, eps)
    embedding, table = modulation
    return modulated_rows(x, embedding.split(x.shape[2], dim=-1), table, eps)


def _plan(variant, x, *modulation):
    """The launch for arguments of this form, what makes an output, the bits of an address that is off its vectors, and
    the strides over batches and tokens. No launch where only Triton will do."""
    _check(variant, x, *modulation)
    batch, tokens, cols = x.shape
    parts = modulation if variant == EXPLICIT else modulation[0].split(cols, dim=-1)
    found = {steps("modulation", part, *x.shape) for part in parts}
    *of_x, column = steps("x", x, *x.shape)
    *of_modulation, modulation_column = found.pop()
    if (
        not x.is_cuda
        or not 0 < batch < 2**16
        or not 0 < tokens < 2**31
        or found
        or (column, modulation_column) != (1, 1)
        or any(part.dtype != parts[0].dtype for part in parts)
        or (variant == FROM_TEMB and not (modulation[0].stride(-1) == 1 and modulation[1].is_contiguous()))
    ):
        return None, None, 0, ()
    strides = *of_x, *of_modulation
    width = next(n for n in (4, 2, 1) if not any(extent % n for extent in (cols, *strides)))
    given = (x, parts[0]) if variant == EXPLICIT else (x, *modulation)
    words = [max(1, width * tensor.element_size() // 4) for tensor in given]
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    few = batch * tokens <= 2 * processors and _warps(
        cols // width, MOST_WORDS_OF_FEW // max(words), NEAREST_WARPS_OF_FEW
    )
    warps = few or _warps(cols // width, MOST_WORDS // words[0], NEAREST_WARPS)
    if not warps:
        return None, None, 0, ()
    threads, each = warps * 32, -(-cols // (width * warps * 32))
    spare = REGISTERS if width == 4 else REGISTERS_OF_NARROW
    registers = -(-(spare + 2 * each * words[0]) // 8) * 8
    blocks = 1 if few else max(1, min(32, 2048 // threads, 65536 // (registers * threads)))
    name = "dual_modulate" if variant == EXPLICIT else "dual_modulate_from_temb"
    types = ", ".join(IN_CUDA[tensor.dtype] for tensor in given)
    kernel = _CU.get(f"{name}<{types}, {cols}, {width}, {threads}, {blocks}, {str(bool(few)).lower()}>")
    output = outputs_like(x.new_empty((), dtype=torch.float32).expand(x.shape), torch.contiguous_format)
    launch = kernel.prepared((tokens, batch), threads, (*[int] * (len(modulation) + 7), float))
    return launch, output, width * max(tensor.element_size() for tensor in given) - 1, strides


def _warps(vectors, most, nearest):
    """Warps that share a row, at most so many vectors to a thread, as evenly as they can; None if it is too long."""
    each = {warps: -(-vectors // (warps * 32)) for warps in range(1, 33)}
    idle = {warps: (warps * 32 * each[warps] - vectors) * 16 // vectors for warps in each}  # in sixteenths of the row
    able = [warps for warps in each if each[warps] <= most]
    return min(able, key=lambda n: (idle[n], n % 4 > 0, abs(n - nearest)), default=None)


def _check(variant, x, *modulation):
    if x.dim() != 3 or x.dtype not in IN_CUDA:
        raise ValueError(f"x must be [B, S, D] of bfloat16, float16 or float32, not {list(x.shape)} of {x.dtype}")
    batch, tokens, cols = x.shape
    if not 0 < cols <= LONGEST_ROW:
        raise ValueError(f"x has rows of {cols} columns; 1 to {LONGEST_ROW} are taken")
    for name, tensor in zip(NAMES[variant][1:], modulation, strict=True):
        if tensor.dtype not in IN_CUDA or tensor.device != x.device:
            raise ValueError(f"{name} must be a float tensor on {x.device}, not {tensor.dtype} on {tensor.device}")
        if name == "scale_shift_table":
            if tuple(tensor.shape) != (4, cols):
                raise ValueError(f"{name} must be {[4, cols]}, not {list(tensor.shape)}")
        else:
            steps(name, tensor, batch, tokens, cols if variant == EXPLICIT else 4 * cols)
