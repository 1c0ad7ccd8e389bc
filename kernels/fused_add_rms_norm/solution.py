"""residual += x; x = rms_norm(residual) * weight, in place (`apart` not): fp32 inside, each result rounded once.

CUDA C++ (solution.cu) where rows are whole 16-byte vectors, packed or with a stride; Triton (portable.py) for every
other layout and on a CPU. The unrounded fp32 sum is what is normalised: x and residual take as many registers packed as
their sum does in fp32, so it costs nothing. A call is a handful of Python statements, because a token is done in 2 us:
what has to be looked at, is looked at once for every form of the arguments and kept.
"""

from __future__ import annotations

import torch
from portable import add_norm_rows

from harness.cuda import Plans, load

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
ROW_BYTES = 64 * 1024
"""The longest row: more would not stay in the registers of a block."""
MOST_EACH = 5
"""Vectors of a row to a thread. More take so many registers that fewer rows are in flight."""
REGISTERS = {1: 32, 2: 40, 3: 48, 4: 64, 5: 72}
"""What the kernel gets by with for so many vectors without spilling: left alone, ptxas takes a fourth more."""
MASK_REGISTERS = 16
"""Where a thread's last vector may lie beyond the row."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans, _plans_apart = Plans(), Plans()


def fused_add_rms_norm(x, residual, weight, eps):
    """Overwrites x and residual, which must not share memory; returns nothing."""
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return fused_add_rms_norm(x, residual, weight, eps)
    for same_form, launch, x_step, residual_step in _plans.get(x.shape, ()):
        if same_form(x, residual, weight):
            x_at, residual_at, weight_at = x.data_ptr(), residual.data_ptr(), weight.data_ptr()
            if launch is None or (x_at | residual_at | weight_at) & 15 or x_at == residual_at:
                return _in_triton(x, residual, weight, eps)
            launch(x_at, residual_at, weight_at, x_step, residual_step, float(eps))
            return None
    _plans.keep(x.shape, (x, residual, weight), _plan(x, residual, weight))
    return fused_add_rms_norm(x, residual, weight, eps)


def apart(x, residual, weight, eps):
    """Returns the norm and the sum, packed, and leaves x and residual as they are, for op.py."""
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return apart(x, residual, weight, eps)
    tensors = x, residual, weight
    for same_form, launch, x_step, residual_step in _plans_apart.get(x.shape, ()):
        if same_form(*tensors):
            out = x.new_empty(x.shape), x.new_empty(x.shape)
            places = [tensor.data_ptr() for tensor in (*tensors, *out)]
            if launch is None or any(place & 15 for place in places):
                _in_triton(out[0].copy_(x), out[1].copy_(residual), weight, eps)
            else:
                launch(*places, x_step, residual_step, float(eps))
            return out
    _plans_apart.keep(x.shape, tensors, _plan(*tensors, in_place=False))
    return apart(x, residual, weight, eps)


def _plan(x, residual, weight, in_place=True):
    """The launch for arguments of this form and the steps between rows; no launch where only Triton will do."""
    _check(x, residual, weight)
    try:
        flat = _rows("x", x), _rows("residual", residual)
    except ValueError:
        if in_place:
            raise
        return None, 0, 0
    if in_place:
        _check_overwritten(x=flat[0], residual=flat[1])
    (rows, cols), size = flat[0].shape, x.element_size()
    if (
        not x.is_cuda
        or not 0 < rows < 2**31
        or not cols
        or any(matrix.stride(1) != 1 or matrix.stride(0) * size % 16 for matrix in flat)
        or cols * size % 16
        or weight.stride(0) != 1
    ):
        return None, 0, 0
    vectors = cols * size // 16
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    threads, blocks, early = _shape(rows, vectors, processors)
    name, pointers = ("add_norm_row", 3) if in_place else ("add_norm_apart", 5)
    kernel = _CU.get(f"{name}<{IN_CUDA[x.dtype]}, {vectors}, {threads}, {blocks}, {str(early).lower()}>")
    steps = (matrix.stride(0) * size // 16 for matrix in flat)
    return kernel.prepared(rows, threads, (*[int] * (pointers + 2), float)), *steps


def _shape(rows, vectors, processors):
    """Threads to a row, blocks that are to fit a multiprocessor, and whether the gain is loaded with x.

    Few rows are all latency: a thread for every vector. With many, blocks of few warps wait less at their barrier and
    leave room for more rows; warps are dealt out by fours, so threads come in multiples of 128.
    """
    if rows <= 2 * processors:
        return min(1024, -(-vectors // 32) * 32), 1, True
    if vectors < 128:
        threads = -(-vectors // 32) * 32
    else:
        threads = next(n for n in range(128, 1025, 128) if -(-vectors // n) <= MOST_EACH)
    registers = REGISTERS[-(-vectors // threads)] + MASK_REGISTERS * (vectors % threads > 0)
    return threads, max(1, min(32, 2048 // threads, 65536 // (registers * -(-threads // 128) * 128))), False


def _rows(name, tensor):
    """As a matrix that shares the memory: what is written to a copy would be lost."""
    try:
        return tensor.view(-1, tensor.shape[-1]) if tensor.numel() else tensor.new_empty(0, tensor.shape[-1])
    except RuntimeError:
        said = f"{list(tensor.shape)} with strides {tensor.stride()}"
        raise ValueError(f"{name} is overwritten in place, and its rows are no matrix: {said}") from None


def _check(x, residual, weight):
    if x.dim() < 1 or x.dtype not in IN_CUDA:
        raise ValueError(f"x must be rows of float32, bfloat16 or float16, not {_form(x)}")
    if residual.shape != x.shape or residual.dtype != x.dtype:
        raise ValueError(f"residual must be as x, {_form(x)}, not {_form(residual)}")
    if weight.shape != x.shape[-1:] or weight.dtype != x.dtype:
        raise ValueError(f"weight must be [{x.shape[-1]}] of {x.dtype}, not {_form(weight)}")
    if x.shape[-1] * x.element_size() > ROW_BYTES:
        raise ValueError(f"x has rows of {x.shape[-1]} {x.dtype}: a row must not be longer than 64 KiB")
    for name, tensor in (("residual", residual), ("weight", weight)):
        if tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}, but x on {x.device}")


def _check_overwritten(**matrices):
    for name, matrix in matrices.items():
        (rows, cols), (row, column) = matrix.shape, matrix.stride()
        if (cols > 1 and not column) or (rows > 1 and not row) or (column == 1 and rows > 1 and row < cols):
            raise ValueError(f"{name} is overwritten, and its rows overlap: its strides are {matrix.stride()}")


def _in_triton(x, residual, weight, eps):
    if x.numel() and x.data_ptr() == residual.data_ptr():
        raise ValueError("x and residual begin at the same address; both are overwritten and must not share memory")
    add_norm_rows(_rows("x", x), _rows("residual", residual), weight, eps)


def _form(tensor):
    return f"{list(tensor.shape)} of {tensor.dtype}"
