"""x * (constant + scale) + shift, and LayerNorm modulated by the set that a token's index picks.

What production runs takes CUDA (solution.cu), in rows of any width from 8 columns on: 16-bit values, a shift for every
token, a scale that is broadcast over tokens or has a stride, a LayerNorm without weight and bias. Every other layout
takes Triton (portable.py), and so do x and shift off 16 bytes and every tensor on a CPU. Small rows live on the launch
path: what the form of the arguments decides is decided once and kept as a plan.
"""

from __future__ import annotations

import functools
import math
import operator

import portable
import torch

from harness.cuda import Plans, load, outputs_like

C_NAMES = {
    torch.bfloat16: "__nv_bfloat16", torch.float16: "__half", torch.float32: "float",
    torch.int32: "int", torch.int64: "long long", torch.bool: "unsigned char",
}  # fmt: skip
LARGEST_BLOCK = 1024
BLOCKS_OF_FEW_ROWS = 100
"""A call of few rows is fastest as one wave of large blocks: 189 rows of 3072 columns take 2.07 us in 95 blocks of 768
threads, 2.17 in 189 of 384, more than the H200's 132 multiprocessors begin at once. With many rows the size of a block
no longer matters: 27030 of them take 111.2 us in blocks of 1024, 111.4 in blocks of 384."""
LONGEST_ROW = 8192
WIDEST = 16
"""Bytes of a vector."""
INDICES = torch.int32, torch.int64, torch.bool

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def fuse_scale_shift(
    variant, x, scale=None, shift=None, scale_constant=0.0, index=None, eps=1e-6,
    scale0=None, shift0=None, gate0=None, scale1=None, shift1=None, gate1=None,
    residual=None, residual_gate=None, weight=None, bias=None,
):  # fmt: skip
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return fuse_scale_shift(
                variant, x, scale, shift, scale_constant, index, eps,
                scale0, shift0, gate0, scale1, shift1, gate1, residual, residual_gate, weight, bias,
            )  # fmt: skip
    if variant == "scale_shift":
        return _scale_shift(x, scale, shift, scale_constant)
    sets = (scale0, shift0, gate0, scale1, shift1, gate1)
    if variant == "layernorm_gate_select01":
        return _select01(x, None, None, sets, index, eps, weight, bias, False)
    if variant == "residual_layernorm_gate_select01":
        return _select01(x, residual, residual_gate, sets, index, eps, weight, bias, True)
    raise ValueError(f"there is no variant {variant!r}")


def _scale_shift(x, scale, shift, scale_constant, aligned=True):
    """`aligned`: vectors can be read from the scale's address."""
    if scale is None or shift is None:
        raise ValueError("scale_shift needs a scale and a shift")
    key = "scale_shift", x.shape, not scale_constant, aligned
    for same_form, launch, scale_low, layout, output in _plans.get(key, ()):
        if same_form(x, scale, shift):
            x_at, scale_at, shift_at = x.data_ptr(), scale.data_ptr(), shift.data_ptr()
            if launch is None or (x_at | shift_at) & WIDEST - 1:
                return portable.scale_shift(x, scale, shift, scale_constant)
            if scale_at & scale_low:
                return _scale_shift(x, scale, shift, scale_constant, aligned=False)
            out = output()
            launch(x_at, scale_at, shift_at, out.data_ptr(), *layout, scale_constant)
            return out
    _plans.keep(key, (x, scale, shift), _scale_shift_plan(x, scale, shift, scale_constant, aligned))
    return _scale_shift(x, scale, shift, scale_constant, aligned)


def _select01(x, residual, residual_gate, sets, index, eps, weight, bias, with_residual, aligned=WIDEST):
    """All addresses of 16-bit values are multiples of `aligned`, computed only if they are not multiples of 16."""
    tensors = (x, residual, residual_gate, *sets, index) if with_residual else (x, *sets, index)
    try:
        *vectors_at, index_at = [tensor.data_ptr() for tensor in tensors]
    except AttributeError:
        raise ValueError("an operand of this variant is missing") from None
    key = "select01", x.shape, with_residual, aligned
    for same_form, launch, low, set_stride, output in _plans.get(key, ()):
        if same_form(*tensors):
            if launch is None or weight is not None or bias is not None:
                return portable.select01(x, sets, index, eps, residual, residual_gate, weight, bias)
            places = functools.reduce(operator.or_, vectors_at)
            if places & low:
                widest = places & -places
                return _select01(x, residual, residual_gate, sets, index, eps, weight, bias, with_residual, widest)
            out, gate_out = output(), output()
            out_at, gate_out_at = out.data_ptr(), gate_out.data_ptr()
            if with_residual:
                residual_out = output()
                launch(*vectors_at, index_at, out_at, residual_out.data_ptr(), gate_out_at, set_stride, eps)
                return out, residual_out, gate_out
            x_at, *sets_at = vectors_at
            launch(x_at, 0, 0, *sets_at, index_at, out_at, 0, gate_out_at, set_stride, eps)
            return out, gate_out
    _plans.keep(key, tensors, _select01_plan(x, residual, residual_gate, sets, index, aligned))
    return _select01(x, residual, residual_gate, sets, index, eps, weight, bias, with_residual, aligned)


def _fits(x, others):
    """Whether CUDA can take x; what no path can take raises."""
    if any(tensor.device != x.device for tensor in others):
        raise ValueError(f"all operands must be on x's device, {x.device}")
    if x.dim() != 3 or not x.is_contiguous():
        raise ValueError(f"x must be contiguous and [B, L, C]; it has shape {list(x.shape)}, strides {x.stride()}")
    batch, tokens, cols = x.shape
    few_enough = batch < 1 << 16 and tokens * cols < 1 << 32
    return x.is_cuda and x.dtype.itemsize == 2 and x.dtype in C_NAMES and x.numel() > 0 and few_enough


def _scale_shift_plan(x, scale, shift, scale_constant, aligned):
    """The launch, the bits that the scale's address must have clear, what follows the addresses, and what makes the
    output."""
    by_triton = (None, 0, (), None)
    if not _fits(x, (scale, shift)) or shift.shape != x.shape or shift.dtype != x.dtype or not shift.is_contiguous():
        return by_triton
    batch, tokens, cols = x.shape
    batch_stride, token_stride, column_stride, tokens_a_step = portable.steps("scale", scale, batch, tokens, cols)
    if scale.dtype not in (x.dtype, torch.float32) or column_stride != 1 or tokens_a_step != 1:
        return by_triton
    kinds = x.dtype, scale.dtype, cols, scale_constant != 0
    whole = all(stride * scale.element_size() % WIDEST == 0 for stride in (batch_stride, token_stride))
    if aligned and whole and cols % 8 == 0:
        vectors = tokens * cols // 8
        kernel = _kernel("scale_shift", *kinds, token_stride != 0, batch > 1)
        low, batches, layout = WIDEST - 1, batch, (vectors, token_stride, batch_stride)
    elif cols >= 8 and x.numel() < 1 << 31:
        vectors = -(-x.numel() // 8)
        kernel = _kernel("scale_shift_across", *kinds, token_stride != 0 or batch_stride != 0)
        low, batches, layout = 0, 1, (x.numel(), tokens, token_stride, batch_stride)
    else:
        return by_triton
    threads = min(LARGEST_BLOCK, -(-vectors // (BLOCKS_OF_FEW_ROWS * 128)) * 128)
    launch = kernel.prepared((-(-vectors // threads), batches), threads, (*[int] * (4 + len(layout)), float))
    return launch, low, layout, outputs_like(x)


def _select01_plan(x, residual, residual_gate, sets, index, aligned):
    """The launch, the bits that addresses must have clear, the stride of the modulation sets over the batch, and what
    makes an output."""
    by_triton = (None, 0, 0, None)
    like_x = [] if residual is None else [residual, residual_gate]
    if not _fits(x, (*sets, index, *like_x)) or x.shape[2] > LONGEST_ROW or x.shape[1] >= 1 << 31:
        return by_triton
    batch, tokens, cols = x.shape
    set_stride = sets[0].stride(0) if batch > 1 else 0
    if (
        any(vector.shape != (batch, cols) or vector.dtype != x.dtype or vector.stride(1) != 1 for vector in sets)
        or (batch > 1 and any(vector.stride(0) != set_stride for vector in sets))
        or any(tensor.shape != x.shape or tensor.dtype != x.dtype or not tensor.is_contiguous() for tensor in like_x)
        or index.shape != (batch, tokens) or index.dtype not in INDICES or not index.is_contiguous()
    ):  # fmt: skip
        return by_triton
    width = math.gcd(aligned // x.element_size(), cols, set_stride)
    warps = _warps(cols, width, residual is not None)
    kernel = _kernel("select01", x.dtype, index.dtype, cols, width, warps, residual is not None)
    launch = kernel.prepared((tokens, batch), warps * 32, (*[int] * 14, float))
    return launch, width * x.element_size() - 1, set_stride, outputs_like(x)


def _warps(cols, width, with_residual):
    """Warps to a row of selected sets: sixteen values a thread. Thirty-two where x in whole vectors is all it reads,
    unless up to six warps share the row evenly: 3328 columns take 40.7 us in four warps and 47.1 in seven, because a
    multiprocessor has nine rows under way instead of five; 3072 take 40.9 in three and 40.3 in six."""
    even = cols % 512 == 0 and cols <= 6 * 512
    values = 16 if with_residual or width < 8 or even else 32
    return min(16, -(-cols // (32 * values)))


def _kernel(name, *arguments):
    spelled = (str(item).lower() if isinstance(item, (bool, int)) else C_NAMES[item] for item in arguments)
    return _CU.get(f"{name}<{', '.join(spelled)}>")
