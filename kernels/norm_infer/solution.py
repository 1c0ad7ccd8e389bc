"""LayerNorm and RMSNorm over rows, for inference: fp32 inside, one rounding at the store.

CUDA C++ (solution.cu) where a row is a whole number of 16-byte vectors that its threads share evenly, Triton for every
other shape and on a CPU. Either way a row is read once, stays in registers between its statistics and its output, and
the variance of a LayerNorm is centred.

Rows up to 512 bytes (the heads of attention) take part of a warp each, so that their sums need no barrier; wider rows
take a block. A call costs a handful of Python statements, because the rows of a small call are done in 2 us: what has
to be looked at, is looked at once for every form of the arguments and kept.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from harness.cuda import Plans, load, outputs_like

VARIANTS = ("layernorm", "rmsnorm", "rmsnorm_onepass")
IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
ROW_BYTES = 64 * 1024
"""Rows must be shorter than this: upstream's own limit."""
LEAST_EPS = 2.0**-126
"""Below it a row of zeros has a variance that is no normal number, and the CUDA kernels take roots of normal ones."""
ARGUMENTS = (*[int] * 5, float)
"""Of either kernel: x, weight, bias, output, rows, eps."""

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
    cols = x.shape[-1]
    rows = x.numel() // cols if cols else 0
    vectors, rest = divmod(cols * x.element_size(), 16)
    if not x.is_cuda or not x.is_contiguous() or not 0 < rows < 2**30 or rest:
        return None, None, rows
    traits = (
        "LAYER" if variant == "layernorm" else "RMS",
        str(weight is not None).lower(),
        str(bias is not None).lower(),
    )
    short = vectors <= 32 and vectors & (vectors - 1) == 0 and rows * vectors < 2**32
    launch = (_short if short else _long)(IN_CUDA[x.dtype], vectors, rows, traits)
    return launch, outputs_like(x), rows


def _short(kind, lanes, rows, traits):
    """Two rows to a thread in blocks of 128, whatever the size of x; only how it is loaded goes by size.

    In sweeps on an H200 this shape took 1.53, 1.76, 2.98 and 76.4 us for 1320, 4096, 16384 and 648720 heads of 128, a
    copy of the third 2.97. Asking for two lines at once made 16384 heads 0.03 us faster, but 4096 slower by as much
    and 648720 by 1.2.
    """
    each, threads = 2, 128
    ahead = str(2 << 20 < rows * lanes * 16 <= 16 << 20).lower()
    name = f"short_rows<{kind}, {lanes}, {each}, {threads}, {ahead}, {', '.join(traits)}>"
    return _CU.get(name).prepared(triton.cdiv(rows, threads // lanes * each), threads, ARGUMENTS)


def _long(kind, vectors, rows, traits):
    """So many vectors to a thread that a row takes five warps or fewer; None where they cannot be shared evenly."""
    for each in range(1, 11):
        if vectors % (32 * each) == 0 and vectors // each <= 160:
            name = f"long_rows<{kind}, {each}, {vectors // each}, {', '.join(traits)}>"
            return _CU.get(name).prepared(rows, vectors // each, ARGUMENTS)
    return None


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


@triton.jit
def _norm_rows(
    x, weight, bias, out, rows, cols, stride, eps,
    LAYER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < cols)[None, :]
    tile = tl.load(x + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if LAYER:
        tile = tl.where(inside, tile - (tl.sum(tile, axis=1) / cols)[:, None], 0.0)
    tile = tile * (1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / cols + eps))[:, None]
    if WEIGHT:
        tile *= tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        tile += tl.load(bias + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    tl.store(out + row[:, None] * cols + column[None, :], tile.to(out.dtype.element_ty), mask=inside)


def _in_triton(x, weight, bias, eps, variant):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    flat = x.reshape(-1, x.shape[-1])
    flat = flat if flat.stride(1) == 1 else flat.contiguous()
    rows, cols = flat.shape
    block = triton.next_power_of_2(cols)
    tile = 4096 if x.is_cuda else 65536  # elements of a program; the interpreter is slow by the program
    together = max(1, min(tile // block, 32 if x.is_cuda else 512))
    _norm_rows[(triton.cdiv(rows, together),)](
        flat, weight, bias, out, rows, cols, flat.stride(0), eps,
        LAYER=variant == "layernorm", WEIGHT=weight is not None, BIAS=bias is not None, ROWS=together, BLOCK=block,
        num_warps=min(max(together * block // 512, 1), 16),
    )  # fmt: skip
    return out
