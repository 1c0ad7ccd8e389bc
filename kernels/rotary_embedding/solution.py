"""Rotary embedding, out of place: adjacent pairs with fp32 tables, or LTX-2's halves with bf16 tables of every head.

CUDA C++ (solution.cu) for bf16 whose rows are whole 16-byte vectors, at any strides that keep them aligned; Triton
(portable.py) for every other layout and on a CPU. Every element is read once and written once, so the work is to keep
the memory busy:

- halves of 64 bytes (LTX-2's heads of 64) take a lane per vector and fetch the other half by shuffle, so that a warp
  touches whole lines; longer ones take a thread per pair of vectors, where each half fills its lines anyway;
- adjacent pairs take a block per token, and a thread two heads, for which it reads the tables once;
- a call too small to fill the GPU takes so large blocks that every multiprocessor starts one, and only one.

A call costs a handful of Python statements, because a small one is done in 2 us on the device: what has to be looked
at, is looked at once for every form of the arguments and kept.
"""

from __future__ import annotations

import functools

import torch
from checks import check
from portable import turn

from harness.cuda import load

VECTOR = 8
"""Elements of bf16 in 16 bytes."""
BLOCK = 256
SMALL_BLOCKS = (128, 256, 512, 1024)
LINE_VECTORS = 8
"""Vectors of a half that fills whole lines of 128 bytes."""
WIDEST_ROW = 512
"""Threads for a token of adjacent pairs."""
PRODUCTION = ("halves_by_lanes<4>", "halves<8>", "adjacent_pairs<16, 2>")

_CU = load("solution.cu", names=PRODUCTION) if torch.cuda.is_available() else None
_plans: dict = {}


def rotary_embedding(x, cos, sin, variant, interleaved=False):
    form = (
        (variant, interleaved, x.dtype, x.shape, x.stride(), x.get_device()),
        (cos.dtype, cos.shape, cos.stride(), cos.get_device()),
        (sin.dtype, sin.shape, sin.stride(), sin.get_device()),
    )
    try:
        launch, sizes, made = _plans[form]
    except KeyError:
        launch, sizes, made = _plans[form] = _plan(x, cos, sin, variant, interleaved)
    if launch is not None:
        x_at, cos_at, sin_at = x.data_ptr(), cos.data_ptr(), sin.data_ptr()
        if not (x_at | cos_at | sin_at) & 15:
            out = made(x)
            launch(x_at, cos_at, sin_at, out.data_ptr(), *sizes)
            return out
    return _in_triton(x, cos, sin, variant, interleaved)


def _in_triton(x, cos, sin, variant, interleaved):
    if variant == "ltx2_split":
        heads, half = cos.shape[1], cos.shape[3]
        return turn(x.unflatten(-1, (heads, 2 * half)), cos.transpose(1, 2), sin.transpose(1, 2), True).view(x.shape)
    if interleaved and cos.shape[1] == x.shape[-1]:
        cos, sin = cos[:, ::2], sin[:, ::2]
    heads_of_tokens = x if x.dim() == 4 else x[None]
    return turn(heads_of_tokens, cos[None, :, None], sin[None, :, None], False).view(x.shape)


def _plan(x, cos, sin, variant, interleaved):
    """The launch for arguments of this form, its last arguments, and what makes the output; None for Triton's."""
    check(x, cos, sin, variant, interleaved)
    if not x.is_cuda or x.dtype != torch.bfloat16 or not 0 < x.numel() < 2**31:
        return None, (), None
    plan = _halves(x, cos, sin) if variant == "ltx2_split" else _adjacent_pairs(x, cos, sin)
    packed = functools.partial(torch.empty_like, memory_format=torch.contiguous_format)
    return (*plan, torch.empty_like if x.is_contiguous() else packed)


def _vectors(strides, vector):
    """Strides counted in vectors, or None where one is not a whole number of them."""
    return None if any(stride % vector for stride in strides) else [stride // vector for stride in strides]


def _steps(tensor):
    """Strides; 0 where there is only one to step to, as torch may say anything there."""
    return [stride if length > 1 else 0 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def _halves(x, cos, sin):
    batch, heads, tokens, half = cos.shape
    if half % VECTOR or half > 256 or x.stride(2) != 1 or batch > 65535:
        return None, ()
    vectors, pairs = half // VECTOR, tokens * heads * half // VECTOR
    if x.is_contiguous() and all(table.transpose(1, 2).is_contiguous() for table in (cos, sin)):
        if vectors < LINE_VECTORS and vectors & (vectors - 1) == 0:
            return _spread(f"halves_by_lanes<{vectors}>", batch * pairs * 2, 1, x.device), (batch * pairs * 2,)
        return _spread(f"halves<{vectors}>", batch * pairs, 1, x.device), (batch * pairs,)
    strides = _vectors((*_steps(x)[:2], *_steps(cos)[:3], *_steps(sin)[:3]), VECTOR)
    if strides is None:
        return None, ()
    return _spread(f"halves_strided<{vectors}>", pairs, batch, x.device), (pairs, heads, *strides)


def _spread(name, threads, batch, device):
    """So many threads for each batch: one block a multiprocessor where that is enough, else many of middling size."""
    most = torch.cuda.get_device_properties(device).multi_processor_count
    fitting = (size for size in SMALL_BLOCKS if -(-threads // size) * batch <= most)
    block = next(fitting, BLOCK)
    return _CU.get(name)[(-(-threads // block), batch), block]


def _adjacent_pairs(x, cos, sin):
    heads_of_tokens = x if x.dim() == 4 else x[None]
    batch, tokens, heads, dim = heads_of_tokens.shape
    x_batch, x_token, x_head, _ = _steps(heads_of_tokens)
    tables_fit = cos.shape[1] == dim // 2 and cos.stride(1) == sin.stride(1) == 1
    if dim % VECTOR or not tables_fit or x.stride(-1) != 1 or x_head not in (0, dim) or batch > 65535:
        return None, ()
    columns = dim // VECTOR
    x_strides, table_strides = _vectors((x_batch, x_token), VECTOR), _vectors((_steps(cos)[0], _steps(sin)[0]), 4)
    for together in (min(2, heads), 4):
        width = columns * -(-heads // together)
        if width <= WIDEST_ROW and x_strides is not None and table_strides is not None:
            rows = max(1, min(BLOCK // width, tokens))
            launch = _CU.get(f"adjacent_pairs<{columns}, {together}>")[(-(-tokens // rows), batch), (width, rows)]
            return launch, (tokens, heads * columns, *x_strides, *table_strides)
    return None, ()
