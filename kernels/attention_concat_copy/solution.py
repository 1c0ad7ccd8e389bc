"""Movement around sequence-parallel attention: a slice of heads made dense, runs of tokens made one, or both at once.

Every variant is one run of tokens after the other, each with its own strides; a slice of heads is an address and a
length. CUDA C++ (solution.cu) where 16 bytes can be moved at a time, Triton (portable.py) for the rest and on a CPU.
What a call needs is worked out once for every form of the arguments and kept.
"""

from __future__ import annotations

import torch
from portable import dense_tokens

from harness.cuda import Plans, load, outputs_like

COPY, CONCAT, SLICE = "copy_contiguous", "concat_sequence", "slice_heads_then_concat"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LARGEST_BLOCK, USUAL_BLOCK = 1024, 128
BLOCKS_OF_A_WAVE = 100
"""A small call is one wave of blocks, as large as that takes; a larger one has blocks of 128 threads."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def attention_concat_copy(variant, a, b=None, order="AB", head_start=0):
    """A new dense [B, S, H, D]: a, or a and b, or the heads of a from head_start on and b; `order` says which first."""
    if _SEVERAL_GPUS and a.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(a.get_device()):
            return attention_concat_copy(variant, a, b, order, head_start)
    given = (a,) if b is None else (a, b)
    key = variant, a.shape, order, head_start, b is None
    for same_form, launch, output, skipped, numbers in _plans.get(key, ()):
        if same_form(*given):
            a_at, b_at = a.data_ptr() + skipped, 0 if b is None else b.data_ptr()
            if launch is None or (a_at | b_at) & 15:
                return dense_tokens(*_runs(variant, a, b, order, head_start))
            out = output()
            if order == "AB" or b is None:
                launch(a_at, b_at, out.data_ptr(), *numbers)
            else:
                launch(b_at, a_at, out.data_ptr(), *numbers)
            return out
    _check(variant, a, b, order, head_start)
    _plans.keep(key, given, _plan(variant, a, b, order, head_start))
    return attention_concat_copy(variant, a, b, order, head_start)


def _runs(variant, a, b, order, head_start):
    """The runs of tokens in the order of the output: one or two."""
    if variant == COPY:
        return (a,)
    part = a[:, :, head_start : head_start + b.shape[2]] if variant == SLICE else a
    return (part, b) if order == "AB" else (b, part)


def _plan(variant, a, b, order, head_start):
    """The launch for arguments of this form, its output, the bytes of a that it skips, and its numbers.

    No launch where only Triton will do.
    """
    runs = _runs(variant, a, b, order, head_start)
    batch, first_tokens, heads, head_dim = runs[0].shape
    tokens, of_vector = sum(run.shape[1] for run in runs), 16 // a.element_size()
    strides = [_in_vectors(run, of_vector) for run in runs]
    if not a.is_cuda or not batch * tokens * heads * head_dim or head_dim % of_vector or None in strides:
        return None, None, 0, ()
    lanes, of_head = heads * head_dim // of_vector, head_dim // of_vector
    packed = heads == 1 or all(over_heads == of_head for *_, over_heads in strides)
    vectors = tokens * lanes
    if max(vectors + LARGEST_BLOCK, *strides[0][1:], *strides[-1][1:]) >= 2**32 or batch >= 2**16:
        return None, None, 0, ()
    threads = -(-batch * vectors // (BLOCKS_OF_A_WAVE * 128)) * 128
    threads = threads if threads <= LARGEST_BLOCK else USUAL_BLOCK
    (batch_a, *steps_a), (batch_b, *steps_b) = strides[0], strides[-1]
    model = ", ".join(map(str, (lanes, 0 if packed else of_head, *steps_a, *steps_b)))
    kernel = _CU.get(f"one_after_the_other<{model}>")
    launch = kernel.prepared((-(-vectors // threads), batch), threads, [int] * 7)
    output = outputs_like(a.new_empty(1).expand(batch, tokens, heads, head_dim), torch.contiguous_format)
    skipped = head_start * a.stride(2) * a.element_size()
    return launch, output, skipped, (vectors, first_tokens, batch_a, batch_b)


def _in_vectors(run, of_vector):
    """Strides over batch, tokens and heads in 16 bytes, 0 where there is one; None if heads are not whole vectors."""
    leading = [stride if length > 1 else 0 for length, stride in zip(run.shape[:3], run.stride()[:3], strict=True)]
    if run.stride(3) != 1 or any(stride % of_vector for stride in leading):
        return None
    return [stride // of_vector for stride in leading]


def _check(variant, a, b, order, head_start):
    if variant not in (COPY, CONCAT, SLICE):
        raise ValueError(f"variant {variant!r} is none of {COPY}, {CONCAT} and {SLICE}")
    if order not in ("AB", "BA"):
        raise ValueError(f"order {order!r} is neither 'AB' nor 'BA'")
    if a.dim() != 4 or a.dtype not in DTYPES:
        raise ValueError(f"a must be [B, S, H, D] of bfloat16, float16 or float32, not {list(a.shape)} of {a.dtype}")
    if variant != SLICE and head_start:
        raise ValueError(f"head_start {head_start} is for {SLICE} alone, not for {variant}")
    if variant == COPY:
        if b is not None:
            raise ValueError(f"b of shape {list(b.shape)}: {COPY} takes a alone")
        return
    if b is None:
        raise ValueError(f"b is None, but {variant} takes two tensors")
    if b.dtype != a.dtype or b.device != a.device:
        raise ValueError(f"b is {b.dtype} on {b.device}, but a {a.dtype} on {a.device}")
    if b.dim() != 4 or (b.shape[0], b.shape[3]) != (a.shape[0], a.shape[3]):
        raise ValueError(f"b of shape {list(b.shape)} does not go with a, {list(a.shape)}")
    if variant == CONCAT and b.shape[2] != a.shape[2]:
        raise ValueError(f"b has {b.shape[2]} heads, but a has {a.shape[2]}")
    if variant == SLICE:
        _check_slice(a.shape[2], b.shape[2], head_start)


def _check_slice(heads, local, head_start):
    if not 0 < local < heads:
        raise ValueError(f"b has {local} heads; they must be fewer than the {heads} of a, and more than none")
    if head_start < 0 or head_start % local or head_start + local > heads:
        raise ValueError(
            f"head_start {head_start} must be a multiple of {local} with as many of {heads} heads after it"
        )
