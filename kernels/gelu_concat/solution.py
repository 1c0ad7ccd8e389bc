"""cat([attended, gelu(mlp)], -1), GELU in its tanh form: fp32 inside, one rounding, one read and one write.

CUDA C++ (solution.cu) where both parts of a row are whole 16-byte vectors, whatever the stride between rows; Triton
(portable.py) for every other layout and on a CPU. What has to be looked at, is looked at once for every form of the
arguments and kept.
"""

from __future__ import annotations

import math

import torch
from portable import joined_rows

from harness.cuda import Plans, load, outputs_like

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
LARGEST_BLOCK = 1024
BLOCKS_OF_FEW_ROWS = 100
"""A small call is fastest as one wave of blocks, as large as that takes (found for fuse_scale_shift)."""
NO_LAUNCH = None, None, 0, 0, 0

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def gelu_concat(attended, mlp):
    """A new dense [..., A + M] of attended [..., A] and the GELU of mlp [..., M]."""
    if _SEVERAL_GPUS and mlp.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(mlp.get_device()):
            return gelu_concat(attended, mlp)
    for same_form, launch, output, *numbers in _plans.get(mlp.shape, ()):
        if same_form(attended, mlp):
            attended_at, mlp_at = attended.data_ptr(), mlp.data_ptr()
            if launch is None or (attended_at | mlp_at) & 15:
                return joined_rows(attended, mlp)
            out = output()
            launch(attended_at, mlp_at, out.data_ptr(), *numbers)
            return out
    _check(attended, mlp)
    _plans.keep(mlp.shape, (attended, mlp), _plan(attended, mlp))
    return gelu_concat(attended, mlp)


def _plan(attended, mlp):
    """The launch for arguments of this form, its output, the output's vectors, and both steps between rows."""
    rows, widths = math.prod(mlp.shape[:-1]), (attended.shape[-1], mlp.shape[-1])
    steps = [_step(x, rows) for x in (attended, mlp)]
    if not mlp.is_cuda or None in steps:
        return NO_LAUNCH
    vectors = [width * mlp.element_size() // 16 for width in widths]
    count = rows * sum(vectors)
    if count >= 2**32 - LARGEST_BLOCK:
        return NO_LAUNCH
    threads = min(LARGEST_BLOCK, -(-count // (BLOCKS_OF_FEW_ROWS * 128)) * 128)
    kernel = _CU.get(f"joined_vectors<{IN_CUDA[mlp.dtype]}, {vectors[0]}, {vectors[1]}>")
    launch = kernel.prepared(-(-count // threads), threads, [int] * 6)
    output = outputs_like(mlp.new_empty(1).expand(*mlp.shape[:-1], sum(widths)), torch.contiguous_format)
    return launch, output, count, *steps


def _step(x, rows):
    """From row to row in 16-byte vectors; None if rows are not whole vectors at a common distance."""
    size, width = x.element_size(), x.shape[-1]
    if not x.numel() or width * size % 16 or (width > 1 and x.stride(-1) != 1):
        return None
    try:
        step = x.view(rows, width).stride(0) * size if rows > 1 else 0
    except RuntimeError:  # the leading dimensions have no common stride
        return None
    return None if step % 16 else step // 16


def _check(attended, mlp):
    for name, x in (("attended", attended), ("mlp", mlp)):
        if x.dim() < 1 or x.dtype not in IN_CUDA:
            raise ValueError(f"{name} must be rows of float32, bfloat16 or float16, not {list(x.shape)} of {x.dtype}")
    if attended.dtype != mlp.dtype or attended.device != mlp.device:
        raise ValueError(f"attended is {attended.dtype} on {attended.device}, but mlp {mlp.dtype} on {mlp.device}")
    if attended.shape[:-1] != mlp.shape[:-1]:
        raise ValueError(f"attended of shape {list(attended.shape)} and mlp of {list(mlp.shape)} have different rows")
