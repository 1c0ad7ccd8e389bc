"""x * (constant + scale) + shift, and LayerNorm modulated by the set that a token's index picks.

What production runs takes CUDA (solution.cu): 16-bit rows with columns in eights, a shift for every token, a scale that
is broadcast over tokens or has a stride, a LayerNorm without weight and bias. Every other layout takes Triton
(portable.py), and so does every tensor on a CPU. Small rows live on the launch path: what shapes, strides and dtypes
decide is decided once and kept as a plan.
"""

from __future__ import annotations

import functools

import portable
import torch

from harness import cuda

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
MOST_PLANS = 4096
_plans = {}


def fuse_scale_shift(
    variant, x, scale=None, shift=None, scale_constant=0.0, index=None, eps=1e-6,
    scale0=None, shift0=None, gate0=None, scale1=None, shift1=None, gate1=None,
    residual=None, residual_gate=None, weight=None, bias=None,
):  # fmt: skip
    if variant == "scale_shift":
        if scale is None or shift is None:
            raise ValueError("scale_shift needs a scale and a shift")
        key = (x.shape, x.dtype, x.is_contiguous(), scale.shape, scale.stride(), scale.dtype,
               shift.shape, shift.dtype, shift.is_contiguous(), x.is_cuda & scale.is_cuda & shift.is_cuda,
               not scale_constant)  # fmt: skip
        plan = _plans.get(key) or _remembered(key, _scale_shift_plan, x, scale, shift, scale_constant)
        launch, vectors, token_stride, batch_stride = plan
        at_x, at_scale, at_shift = x.data_ptr(), scale.data_ptr(), shift.data_ptr()
        if launch is None or (at_x | at_scale | at_shift) % 16:
            return portable.scale_shift(x, scale, shift, scale_constant)
        out = torch.empty_like(x)
        launch(at_x, at_scale, at_shift, out, vectors, token_stride, batch_stride, float(scale_constant))
        return out
    sets = (scale0, shift0, gate0, scale1, shift1, gate1)
    if variant == "layernorm_gate_select01":
        return _select01((x, *sets, index), x, None, None, sets, index, eps, weight, bias)
    if variant == "residual_layernorm_gate_select01":
        tensors = (x, *sets, index, residual, residual_gate)
        return _select01(tensors, x, residual, residual_gate, sets, index, eps, weight, bias)
    raise ValueError(f"there is no variant {variant!r}")


def _select01(tensors, x, residual, residual_gate, sets, index, eps, weight, bias):
    if any(tensor is None for tensor in tensors):
        raise ValueError("an operand of this variant is missing")
    key = (*[(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors], x.is_cuda)
    launch, set_stride = _plans.get(key) or _remembered(key, _select01_plan, x, residual, residual_gate, sets, index)
    bits = 0
    for tensor in tensors:
        bits |= tensor.data_ptr() if tensor is not index else 0
    if launch is None or bits % 16 or weight is not None or bias is not None:
        return portable.select01(x, sets, index, eps, residual, residual_gate, weight, bias)
    out, gate_out = torch.empty_like(x), torch.empty_like(x)
    residual_out = None if residual is None else torch.empty_like(x)
    launch(x, residual, residual_gate, *sets, index, out, residual_out, gate_out, set_stride, float(eps))
    return (out, gate_out) if residual is None else (out, residual_out, gate_out)


def _remembered(key, planned, *args):
    if len(_plans) >= MOST_PLANS:  # lengths that never come back must not fill the memory
        _plans.clear()
    plan = _plans[key] = planned(*args)
    return plan


def _fits(x):
    """Whether CUDA can take x; what no path can take raises."""
    if x.dim() != 3 or not x.is_contiguous():
        raise ValueError(f"x must be contiguous and [B, L, C]; it has shape {list(x.shape)}, strides {x.stride()}")
    batch, tokens, cols = x.shape
    few_enough = batch < 1 << 16 and tokens * cols < 1 << 32
    return x.is_cuda and x.dtype.itemsize == 2 and x.dtype in C_NAMES and cols % 8 == 0 < x.numel() and few_enough


def _scale_shift_plan(x, scale, shift, scale_constant):
    """The launch, the vectors of one batch, and the scale's strides over tokens and batch."""
    by_triton = (None, 0, 0, 0)
    if not _fits(x) or shift.shape != x.shape or shift.dtype != x.dtype or not shift.is_contiguous():
        return by_triton
    if not (scale.is_cuda and shift.is_cuda):
        return by_triton
    batch, tokens, cols = x.shape
    batch_stride, token_stride, column_stride, tokens_a_step = portable.steps("scale", scale, batch, tokens, cols)
    whole = all(stride * scale.element_size() % 16 == 0 for stride in (batch_stride, token_stride))
    if scale.dtype not in (x.dtype, torch.float32) or column_stride != 1 or tokens_a_step != 1 or not whole:
        return by_triton
    vectors = tokens * cols // 8
    flags = [scale_constant != 0, token_stride != 0, batch > 1]
    kernel = _kernel("scale_shift", x.dtype, scale.dtype, cols, *flags)
    threads = min(LARGEST_BLOCK, -(-vectors // (BLOCKS_OF_FEW_ROWS * 128)) * 128)
    return kernel[(-(-vectors // threads), batch), threads], vectors, token_stride, batch_stride


def _select01_plan(x, residual, residual_gate, sets, index):
    """The launch and the stride of the modulation sets over the batch."""
    by_triton = (None, 0)
    if not _fits(x) or x.shape[2] > LONGEST_ROW:
        return by_triton
    batch, tokens, cols = x.shape
    like_x = [] if residual is None else [residual, residual_gate]
    set_stride = sets[0].stride(0)
    if (
        any(vector.shape != (batch, cols) or vector.dtype != x.dtype or vector.stride(1) != 1 for vector in sets)
        or (batch > 1 and (set_stride % 8 or any(vector.stride(0) != set_stride for vector in sets)))
        or any(tensor.shape != x.shape or tensor.dtype != x.dtype or not tensor.is_contiguous() for tensor in like_x)
        or index.shape != (batch, tokens) or index.dtype not in C_NAMES or not index.is_contiguous()
    ):  # fmt: skip
        return by_triton
    warps = min(16, -(-cols // 512))  # two vectors a thread
    kernel = _kernel("select01", x.dtype, index.dtype, cols, warps, residual is not None)
    return kernel[(tokens, batch), warps * 32], set_stride


def _kernel(name, *arguments):
    spelled = (str(item).lower() if isinstance(item, (bool, int)) else C_NAMES[item] for item in arguments)
    return _library().get(f"{name}<{', '.join(spelled)}>")


@functools.cache
def _library():
    return cuda.load("solution.cu")
