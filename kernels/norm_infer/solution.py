"""LayerNorm and RMSNorm over rows, for inference: fp32 inside, one rounding at the store.

CUDA C++ (solution.cu) where x is packed, of any width, and all tensors begin at 16-byte addresses; Triton (portable.py)
for the rest and on a CPU. Either way a row is read once, stays in registers between its statistics and its output, and
the variance of a LayerNorm is centred.

Short rows (the heads of attention) take a warp each or part of one, so that their sums need no barrier; longer rows
take a block. A call costs a handful of Python statements, because the rows of a small call are done in 2 us: arguments
are inspected once for every form of theirs, and what was found is kept.
"""

from __future__ import annotations

import math

import torch
from portable import norm_rows

from harness.cuda import Plans, load, outputs_like

VARIANTS = ("layernorm", "rmsnorm", "rmsnorm_onepass")
IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
ROW_BYTES = 64 * 1024
"""Rows must be shorter than this: upstream's own limit."""
LEAST_EPS = 2.0**-126
"""Below it a row of zeros has a variance that is no normal number, and the CUDA kernels take roots of normal ones."""
NARROW = {2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
"""Vectors by their bytes."""
ARGUMENTS = (*[int] * 5, float)
"""Of every kernel: x, weight, bias, output, rows, eps."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def norm_infer(x, weight, bias, eps, variant):
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return norm_infer(x, weight, bias, eps, variant)
    if bias is None:
        given = (x,) if weight is None else (x, weight)
    else:
        given = (x, bias) if weight is None else (x, weight, bias)
    key = x.shape, variant, weight is None, bias is None
    for same_form, launch, output, rows in _plans.get(key, ()):
        if same_form(*given):
            x_at = x.data_ptr()
            weight_at = 0 if weight is None else weight.data_ptr()
            bias_at = 0 if bias is None else bias.data_ptr()
            if launch is None or (x_at | weight_at | bias_at) & 15 or not eps >= LEAST_EPS:
                return _in_triton(x, weight, bias, eps, variant)
            out = output()
            launch(x_at, weight_at, bias_at, out.data_ptr(), rows, float(eps))
            return out
    _plans.keep(key, given, _plan(x, weight, bias, variant))
    return norm_infer(x, weight, bias, eps, variant)


def _plan(x, weight, bias, variant):
    """The launch for arguments of this form, its output and number of rows; no launch where only Triton will do."""
    _check(x, weight, bias, variant)
    cols, size = x.shape[-1], x.element_size()
    rows = x.numel() // cols if cols else 0
    if not x.is_cuda or not x.is_contiguous() or not 0 < rows < 2**30:
        return None, None, rows
    traits = (
        "LAYER" if variant == "layernorm" else "RMS",
        str(weight is not None).lower(),
        str(bias is not None).lower(),
    )
    name, grid, threads = _short(IN_CUDA[x.dtype], cols * size, rows, traits) or _long(x.dtype, cols, rows, traits)
    return _CU.get(name).prepared(grid, threads, ARGUMENTS), outputs_like(x), rows


def _short(kind, row_bytes, rows, traits):
    """A row to up to 32 lanes, in blocks of 128, whatever the size of x; only how it is loaded goes by size. None where
    a row is too long or has too many narrow vectors.

    In sweeps on an H200 two rows to a thread took 1.53, 1.76, 2.98 and 76.4 us for 1320, 4096, 16384 and 648720 heads
    of 128, a copy of the third 2.97. Asking for two lines at once made 16384 heads 0.03 us faster, but 4096 slower by
    as much and 648720 by 1.2. Narrow vectors take four rows, to have as much under way.
    """
    width = min(16, row_bytes & -row_bytes)
    vectors, threads = row_bytes // width, 128
    if row_bytes >= 1024 or vectors > 256 or rows * vectors >= 2**32:
        return None
    widest = 1 << min(5, (vectors - 1).bit_length())
    # Of narrow vectors 16 lanes, if fewer of them are idle at the end of a row and they still ask for 64 bytes at once.
    fewer = [16] if 4 <= width < 16 < widest and -(-vectors // 16) * width <= 40 else []
    lanes = min([widest, *fewer], key=lambda lanes: -(-vectors // lanes) * lanes)
    each = 4 if width < 16 and -(-vectors // lanes) * max(width, 4) <= 24 else 2  # registers bound them
    ahead = str(width == 16 and 2 << 20 < rows * row_bytes <= 16 << 20).lower()
    name = f"short_rows<{kind}, {NARROW[width]}, {vectors}, {lanes}, {each}, {threads}, {ahead}, {', '.join(traits)}>"
    return name, -(-rows // (threads // lanes * each)), threads


def _long(dtype, cols, rows, traits):
    """Threads share a row evenly where five warps or fewer can. Elsewhere they are whole warps, eight or fewer if no
    thread gets more than eight vectors for it, with as few places left over as possible."""
    width, kind = 16 // dtype.itemsize, IN_CUDA[dtype]
    vectors, rest = divmod(cols, width)
    for each in range(1, 11):
        if not rest and vectors % (32 * each) == 0 and vectors // each <= 160:
            return f"long_rows<{kind}, {each}, {vectors // each}, {', '.join(traits)}>", rows, vectors // each
    covered = (cols + 2 * width - min(width, cols & -cols) - 1) // width  # what a row touches, as in uneven.cuh
    shares = [(each, -(-covered // (32 * each)) * 32) for each in range(1, 9)]
    _, threads = min((share for share in shares if share[1] <= 256 or share == shares[-1]), key=math.prod)
    return f"uneven_rows<{kind}, {cols}, {threads}, {', '.join(traits)}>", rows, threads


def _check(x, weight, bias, variant):
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r} is none of {', '.join(VARIANTS)}")
    if x.dtype not in IN_CUDA:
        raise ValueError(f"x is {x.dtype}; norm_infer takes float32, bfloat16 and float16")
    if x.ndim < 1 or (x.ndim != 2 and variant != "rmsnorm_onepass"):
        raise ValueError(f"x of shape {list(x.shape)}: {variant} takes a matrix of rows")
    if x.shape[-1] * x.element_size() >= ROW_BYTES:
        raise ValueError(f"rows of {x.shape[-1]} {x.dtype} are too long: a row must stay below 64 KiB")
    if variant == "rmsnorm_onepass" and (weight is None or bias is not None):
        raise ValueError("rmsnorm_onepass takes a weight and no bias")
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is None:
            continue
        if vector.shape != x.shape[-1:] or not vector.is_contiguous():
            raise ValueError(f"{name} of shape {list(vector.shape)}: rows of {x.shape[-1]} take a packed one as long")
        if vector.dtype != x.dtype or vector.device != x.device:
            raise ValueError(f"{name} is {vector.dtype} on {vector.device}, but x {x.dtype} on {x.device}")


def _in_triton(x, weight, bias, eps, variant):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        norm_rows(x.reshape(-1, x.shape[-1]), weight, bias, out, eps, variant == "layernorm")
    return out
