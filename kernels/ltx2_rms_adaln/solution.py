"""LTX-2's AdaLN: rms_norm(x) * (1 + scale) + shift in fp32, where scale and shift have a row for every token.

CUDA C++ (solution.cu) wherever columns lie side by side, in vectors as wide as width, strides and addresses allow; so
odd widths are served by the same kernel. Triton (portable.py) for every other form and on a CPU. What a call needs is
worked out once for every form of the arguments and kept: the rows of audio are done in 2 us.
"""

from __future__ import annotations

import torch
from portable import modulated_rows, steps

from harness.cuda import Plans, load, outputs_like

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
LONGEST_ROW = 32768
"""Columns that a Triton program holds."""
MOST_WORDS, MOST_WORDS_OF_FEW = 16, 8
"""Of four bytes that a thread holds of x, where rows are many and where they are few and all latency."""
NEAREST_WARPS = 4
"""Warps of a row: few wait less at their barrier, and four are what torch's kernel has, whose sums come out alike."""
REGISTERS = 28
"""What the kernel needs in addition to the words of x, scale and shift that a thread holds."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def ltx2_rms_adaln(x, scale, shift, eps):
    """fp32 of x's shape, [B, S, D]; scale and shift are [B, S, D], [B, 1, D], [B, D] or [D]."""
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return ltx2_rms_adaln(x, scale, shift, eps)
    for same_form, launch, output, off_vectors, strides in _plans.get(x.shape, ()):
        if same_form(x, scale, shift):
            x_at, scale_at, shift_at = x.data_ptr(), scale.data_ptr(), shift.data_ptr()
            if launch is None or (x_at | scale_at | shift_at) & off_vectors:
                return modulated_rows(x, scale, shift, eps)
            out = output()
            launch(x_at, scale_at, shift_at, out.data_ptr(), *strides, float(eps))
            return out
    _plans.keep(x.shape, (x, scale, shift), _plan(x, scale, shift))
    return ltx2_rms_adaln(x, scale, shift, eps)


def _plan(x, scale, shift):
    """The launch for arguments of this form, what makes its output, the bits of an address that is off its vectors, and
    the strides over batches and tokens. No launch where only Triton will do."""
    _check(x, scale, shift)
    batch, tokens, cols = x.shape
    found = [steps(name, tensor, *x.shape) for name, tensor in (("x", x), ("scale", scale), ("shift", shift))]
    if (
        not x.is_cuda
        or not 0 < batch < 2**16
        or not 0 < tokens < 2**31
        or scale.dtype != shift.dtype
        or any(column != 1 for *_, column in found)
    ):
        return None, None, 0, ()
    strides = [step for *outer, _ in found for step in outer]
    width = next(n for n in (4, 2, 1) if not any(extent % n for extent in (cols, *strides)))
    sizes = x.element_size(), scale.element_size()
    words = [max(1, width * size // 4) for size in sizes]
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    few = batch * tokens <= 2 * processors and _warps(cols // width, MOST_WORDS_OF_FEW // max(words))
    warps = few or _warps(cols // width, MOST_WORDS // max(words))
    if not warps:
        return None, None, 0, ()
    threads, each = warps * 32, -(-cols // (width * warps * 32))
    registers = -(-(REGISTERS + each * (words[0] + 2 * words[1])) // 8) * 8
    blocks = max(1, min(32, 2048 // threads, 65536 // (registers * threads)))
    types = f"{IN_CUDA[x.dtype]}, {IN_CUDA[scale.dtype]}"
    kernel = _CU.get(f"rms_adaln<{types}, {cols}, {width}, {threads}, {blocks}>")
    output = outputs_like(x.new_empty((), dtype=torch.float32).expand(x.shape), torch.contiguous_format)
    launch = kernel.prepared((tokens, batch), threads, (*[int] * 10, float))
    return launch, output, width * max(sizes) - 1, strides


def _warps(vectors, most):
    """Warps that share a row, at most so many vectors to a thread, as evenly as they can; None if it is too long."""
    each = {warps: -(-vectors // (warps * 32)) for warps in range(1, 33)}
    idle = {warps: (warps * 32 * each[warps] - vectors) * 16 // vectors for warps in each}  # in sixteenths of the row
    able = [warps for warps in each if each[warps] <= most]
    return min(able, key=lambda n: (idle[n], n % 4 > 0, abs(n - NEAREST_WARPS)), default=None)


def _check(x, scale, shift):
    if x.dim() != 3 or x.dtype not in IN_CUDA:
        raise ValueError(f"x must be [B, S, D] of bfloat16, float16 or float32, not {list(x.shape)} of {x.dtype}")
    if not 0 < x.shape[2] <= LONGEST_ROW:
        raise ValueError(f"x has rows of {x.shape[2]} columns; 1 to {LONGEST_ROW} are taken")
    for name, tensor in (("scale", scale), ("shift", shift)):
        if tensor.dtype not in IN_CUDA or tensor.device != x.device:
            raise ValueError(f"{name} must be a float tensor on {x.device}, not {tensor.dtype} on {tensor.device}")
