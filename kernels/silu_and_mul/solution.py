"""silu(x[..., :d]) * x[..., d:]: fp32 inside, one rounding.

CUDA C++ (solution.cu) where both halves of a row are whole 16-byte vectors, whatever the stride between rows; Triton
(portable.py) for every other layout and on a CPU. A call is a handful of Python statements, because a token is done in
2 us: what has to be looked at, is looked at once for every form of x and kept.
"""

from __future__ import annotations

import torch
from portable import gated_rows

from harness.cuda import Plans, load, outputs_like

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
BLOCKS_OF_A_WAVE, LARGEST_BLOCK, USUAL_BLOCK = 100, 1024, 256
"""A small call is fastest as one wave of blocks, as large as that takes (found for fuse_scale_shift). Beyond that,
large blocks leave multiprocessors idle: 128x11008 makes 172 of 1024 threads, and 92 of 132 multiprocessors wait for the
others, which have two."""
FEW_VECTORS = 8192
"""So few leave most of the GPU idle, and a thread's eight outputs follow each other through the special function unit:
a word to a thread takes a quarter as long."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def silu_and_mul(x):
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return silu_and_mul(x)
    for same_form, launch, output, pieces, step in _plans.get(x.shape, ()):
        if same_form(x):
            x_at = x.data_ptr()
            if launch is None or x_at & 15:
                return gated_rows(x)
            out = output()
            launch(x_at, out.data_ptr(), pieces, step)
            return out
    _plans.keep(x.shape, (x,), _plan(x))
    return silu_and_mul(x)


def _plan(x):
    """The launch for an x of this form, its output, the output's pieces and the step between rows of x, in pieces."""
    by_triton = None, None, 0, 0
    if x.dim() < 1 or x.dtype not in IN_CUDA:
        raise ValueError(f"x must be rows of float32, bfloat16 or float16, not {list(x.shape)} of {x.dtype}")
    if x.shape[-1] % 2:
        raise ValueError(f"x has {x.shape[-1]} columns; two halves of equal width take an even number")
    width, size = x.shape[-1] // 2, x.element_size()
    if not x.is_cuda or not x.numel() or width * size % 16:
        return by_triton
    try:
        rows = x.view(-1, 2 * width)
    except RuntimeError:  # its rows have no common stride
        return by_triton
    words, row_words = width * size // 4 * rows.shape[0], rows.stride(0) * size // 4
    if rows.stride(1) != 1 or rows.stride(0) * size % 16 or words >= 2**32:
        return by_triton
    piece = 1 if words <= 4 * FEW_VECTORS else 4
    pieces = words // piece
    threads = -(-pieces // (BLOCKS_OF_A_WAVE * 128)) * 128
    threads = threads if threads <= LARGEST_BLOCK else USUAL_BLOCK
    kernel = _CU.get(f"gated_pieces<{IN_CUDA[x.dtype]}, {piece}, {width * size // 4 // piece}>")
    launch = kernel.prepared(-(-pieces // threads), threads, (int, int, int, int))
    output = outputs_like(x[..., :width], torch.contiguous_format)
    return launch, output, pieces, row_words // piece
