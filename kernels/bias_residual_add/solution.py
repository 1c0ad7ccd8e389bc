"""(residual + x + bias) / divisor: what follows the last convolution of a residual block, in one pass.

Eager torch takes three passes: one adds the convolution's bias, one the block's residual, one divides. Call the
convolution without its bias, and this does all three in one. Computed in fp32 and rounded once.

CUDA C++ (solution.cu) for x and residual of one layout at 16-byte addresses: contiguous with planes of 16 bytes or
more, or channels-last with 16 bytes of channels or more. Triton (portable.py) elsewhere and on a CPU. What a call needs
is worked out once for every form of the arguments.
"""

from __future__ import annotations

import torch
from portable import inner_of, same_layout, summed

from harness.cuda import Plans, load, outputs_like

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
LARGEST_BLOCK, USUAL_BLOCK = 1024, 128
FEW_VECTORS, FEW_BLOCKS = 1 << 20, 100
"""Up to FEW_VECTORS, blocks are as large as it takes to bring the call down to FEW_BLOCKS, which one wave holds, or as
large as they can be."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def bias_residual_add(x, bias, residual, divisor=1.0):
    """A new tensor with the layout of x, [N, C, ...]; bias is [C], residual has the shape of x."""
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return bias_residual_add(x, bias, residual, divisor)
    for same_form, launch, output, vectors, of_bias in _plans.get((x.shape, divisor), ()):
        if same_form(x, bias, residual):
            x_at, bias_at, residual_at = x.data_ptr(), bias.data_ptr(), residual.data_ptr()
            if launch is None or (x_at | residual_at | bias_at & of_bias) & 15:
                return summed(x, bias, residual, divisor)
            out = output()
            launch(x_at, bias_at, residual_at, out.data_ptr(), vectors, divisor)
            return out
    _check(x, bias, residual, divisor)
    _plans.keep((x.shape, divisor), (x, bias, residual), _plan(x, bias, residual, divisor))
    return bias_residual_add(x, bias, residual, divisor)


def _plan(x, bias, residual, divisor):
    """The launch, what makes its output, its whole vectors, and the bits of the bias's address that must be zero: it is
    read in vectors only where channels are adjacent. No launch where only Triton will do."""
    width, inner, channels = 16 // x.element_size(), inner_of(x), x.shape[1]
    is_short = inner < width and (inner > 1 or channels < width)
    bias_in_vectors = inner == 1 and channels % width == 0
    are_whole = inner % width == 0 or bias_in_vectors
    most = width << 31 if are_whole else 1 << 32
    if (
        not x.is_cuda
        or not 0 < x.numel() < most
        or max(inner, channels) >= 1 << 31
        or is_short
        or not same_layout(x, residual)
        or bias.stride() != (1,)
    ):
        return None, None, 0, 0
    vectors, rest = divmod(x.numel(), width)
    workers = vectors + (rest > 0)
    threads = USUAL_BLOCK
    if vectors <= FEW_VECTORS:
        threads = min(LARGEST_BLOCK, -(-workers // (FEW_BLOCKS * 128)) * 128)
    model = IN_CUDA[x.dtype], inner, channels, rest, str(divisor != 1.0).lower()
    kernel = _CU.get(f"bias_residual_add<{', '.join(map(str, model))}>")
    launch = kernel.prepared(-(-workers // threads), threads, [int] * 5 + [float])
    return launch, outputs_like(x), vectors, 15 if bias_in_vectors else 0


def _check(x, bias, residual, divisor):
    if x.dim() < 2 or x.dtype not in IN_CUDA:
        raise ValueError(f"x must be [N, C, ...] of float32, bfloat16 or float16, not {list(x.shape)} of {x.dtype}")
    if residual.shape != x.shape:
        raise ValueError(f"residual has shape {list(residual.shape)}, x has {list(x.shape)}")
    if bias.shape != x.shape[1:2]:
        raise ValueError(f"bias of shape {list(bias.shape)}: {x.shape[1]} channels take one as long")
    for name, tensor in (("bias", bias), ("residual", residual)):
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, but x {x.dtype} on {x.device}")
    if not divisor:
        raise ValueError("divisor is zero")
    if inner_of(x) is None:
        raise ValueError(f"x has strides {x.stride()} for shape {list(x.shape)}; pass it contiguous or channels-last")
