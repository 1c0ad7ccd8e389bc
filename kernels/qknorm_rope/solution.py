"""RMSNorm of every head of q and k, then rotary embedding of its first lanes: in place (`apart` not), fp32 from load to
store.

CUDA C++ for bfloat16 heads, packed or as slices of a fused projection: solution.cu where they are of 64, 128 or 256 and
turned in whole vectors, any_width.cuh for every other even width up to 512. Triton (any_heads.py) for everything else
and on a CPU. A call costs a handful of Python statements, because the heads of a small one are done in 2 us: arguments
are inspected once for every form of theirs, and what was found is kept.
"""

from __future__ import annotations

import torch
from any_heads import any_heads
from any_width import shares, width_of_vectors

from harness.cuda import Plans, load

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
POSITIONS = {torch.int32: "int", torch.int64: "long long"}
LARGEST_BLOCK = 512

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans, _plans_apart = Plans(), Plans()


def qknorm_rope(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps):
    """Overwrites q and k, which must not share memory; returns nothing."""
    if _SEVERAL_GPUS and q.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(q.get_device()):
            return qknorm_rope(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps)
    for same_form, launch, beyond, numbers in _plans.get((q.shape, is_neox), ()):
        if same_form(q, k, q_weight, k_weight, cos_sin_cache, positions):
            q_at, k_at, cache_at = q.data_ptr(), k.data_ptr(), cos_sin_cache.data_ptr()
            q_weight_at, k_weight_at = q_weight.data_ptr(), k_weight.data_ptr()
            if launch is None or (q_at | k_at | cache_at | q_weight_at | k_weight_at) & beyond:
                return any_heads(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps)
            launch(q_at, k_at, q_weight_at, k_weight_at, cache_at, positions.data_ptr(), *numbers, float(eps))
            return None
    tensors = (q, k, q_weight, k_weight, cos_sin_cache, positions)
    _plans.keep((q.shape, is_neox), tensors, _plan(*tensors, is_neox))
    return qknorm_rope(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps)


def apart(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps):
    """Returns packed results and leaves q and k as they are, for op.py."""
    if _SEVERAL_GPUS and q.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(q.get_device()):
            return apart(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps)
    tensors = (q, k, q_weight, k_weight, cos_sin_cache, positions)
    for same_form, launch, beyond, numbers in _plans_apart.get((q.shape, is_neox), ()):
        if same_form(*tensors):
            out = q.new_empty(q.shape), k.new_empty(k.shape)
            places = [tensor.data_ptr() for tensor in (q, k, *out, *tensors[2:])]
            if launch is None or any(place & beyond for place in places[:-1]):
                any_heads(out[0].copy_(q), out[1].copy_(k), *tensors[2:], is_neox, eps)
            else:
                launch(*places, *numbers, float(eps))
            return out
    _plans_apart.keep((q.shape, is_neox), tensors, _plan(*tensors, is_neox, in_place=False))
    return apart(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps)


def _plan(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, in_place=True):
    """The launch for arguments of this form, the address bits that must be clear, and its numbers.

    No launch where only Triton will do.
    """
    _check(q, k, q_weight, k_weight, cos_sin_cache, positions, in_place)
    (tokens, q_heads, head_dim), k_heads = q.shape, k.shape[1]
    cache_rows, rope_dim = cos_sin_cache.shape
    strides = _elements_per_token(q), _elements_per_token(k)
    vectors = (q_weight, k_weight, cos_sin_cache, positions)
    if (
        not q.is_cuda
        or not 0 < tokens < 2**30
        or not 0 < q_heads + k_heads < 2**16
        or None in strides
        or any(tensor.dtype != torch.bfloat16 for tensor in (q, k, q_weight, k_weight))
        or not all(tensor.is_contiguous() for tensor in vectors)
        or cache_rows >= 2**31
        or (width := width_of_vectors(head_dim, rope_dim, is_neox, *strides)) is None
    ):
        return None, 0, ()
    multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
    traits = f"{head_dim}, {rope_dim}, {str(is_neox).lower()}, {POSITIONS[positions.dtype]}"
    if (
        head_dim in (64, 128, 256)
        and all(stride % 8 == 0 and stride < 2**34 for stride in strides)
        and _turns_in_vectors(rope_dim, is_neox)
    ):
        name, last, strides = "heads", 15, [stride // 8 for stride in strides]
        rows, threads, slices = _shares(tokens, q_heads, k_heads, head_dim // 8, multiprocessors)
        shape = f"{rows}, {threads}, {_blocks(rows, threads, rope_dim == head_dim, is_neox)}"
    else:
        unit = width * (2 if is_neox else 1)
        name, last = "any_width", min(16, 2 * unit) - 1
        heads = max(q_heads, k_heads)
        lanes, rows, threads, slices = shares(tokens, heads, head_dim // unit, unit, multiprocessors)
        shape = f"{width}, {lanes}, {rows}, {threads}"
    kernel = _CU.get(f"{name}_{'of_token' if in_place else 'apart'}<{traits}, {shape}>")
    kinds = (*[int] * (11 if in_place else 13), float)
    return kernel.prepared((2 * tokens, slices), threads, kinds), last, (q_heads, k_heads, *strides, cache_rows)


def _shares(tokens, q_heads, k_heads, lanes, multiprocessors):
    """Heads to a group of lanes, threads to a block, and blocks to the q or the k of a token.

    As long as all heads fit on the GPU at once, a group takes one: nothing is shorter than a single load. Beyond that
    it takes two: the angles are read once for both, and a multiprocessor has more bytes in flight (49.3 us for 8424
    tokens of 24 heads, with one head 52.5, with three or four the same 49.5). A block takes all heads of q or of k: 47
    tokens take 1.71 us so, in blocks of 128 threads 1.81.
    """
    rows = 1 if tokens * (q_heads + k_heads) * lanes <= multiprocessors * 2048 else 2
    needed = -(-max(q_heads, k_heads) // rows) * lanes
    threads = min(LARGEST_BLOCK, -(-needed // 32) * 32)
    return rows, threads, -(-needed // threads)


def _blocks(rows, threads, whole, is_neox):
    """Blocks that a multiprocessor is to hold at least: as many as the kernel can without spilling registers."""
    if rows == 1:
        return 1
    resident = 1024 if is_neox else 1536 if whole else 1280
    return max(1, min(32, resident // threads))


def _turns_in_vectors(rope_dim, is_neox):
    """Whether lanes of 8 elements are turned as wholes, and find the other half of their pairs by one exclusive or."""
    if is_neox:
        return rope_dim % 16 == 0 and rope_dim & (rope_dim - 1) == 0
    return rope_dim % 8 == 0


def _elements_per_token(x):
    """The stride of tokens; None where heads are not packed within a token."""
    _, heads, head_dim = x.shape
    if x.is_contiguous():
        return heads * head_dim
    token, head, lane = x.stride()
    return None if lane != 1 or (head != head_dim and heads > 1) else token


def _check(q, k, q_weight, k_weight, cos_sin_cache, positions, in_place):
    for name, x in (("q", q), ("k", k)):
        if x.dim() != 3 or x.dtype not in DTYPES:
            raise ValueError(f"{name} must be [tokens, heads, head_dim] of 16 or 32 bit floats, not {_form(x)}")
        if in_place and any(stride == 0 and length > 1 for length, stride in zip(x.shape, x.stride(), strict=True)):
            raise ValueError(f"{name} is overwritten and must not be an expanded tensor: its strides are {x.stride()}")
    if k.shape[::2] != q.shape[::2] or k.dtype != q.dtype:
        raise ValueError(f"k is {_form(k)}, which does not go with q, {_form(q)}")
    tokens, _, head_dim = q.shape
    for name, weight in (("q_weight", q_weight), ("k_weight", k_weight)):
        if weight.shape != (head_dim,) or weight.dtype not in DTYPES:
            raise ValueError(f"{name} must be of shape [{head_dim}], 16 or 32 bit floats, not {_form(weight)}")
    if cos_sin_cache.dim() != 2 or cos_sin_cache.dtype != torch.float32 or not cos_sin_cache.shape[0]:
        raise ValueError(f"cos_sin_cache must be [positions, rope_dim] of float32, not {_form(cos_sin_cache)}")
    if cos_sin_cache.shape[1] % 2 or not 0 < cos_sin_cache.shape[1] <= head_dim:
        raise ValueError(f"rope_dim {cos_sin_cache.shape[1]} must be even, above 0 and at most head_dim, {head_dim}")
    if positions.shape != (tokens,) or positions.dtype not in POSITIONS:
        raise ValueError(f"positions must be of shape [{tokens}], int32 or int64, not {_form(positions)}")
    for tensor in (k, q_weight, k_weight, cos_sin_cache, positions):
        if tensor.device != q.device:
            raise ValueError(f"all tensors must be on q's device: {tensor.device} is not {q.device}")


def _form(tensor):
    return f"{list(tensor.shape)} of {tensor.dtype}"
