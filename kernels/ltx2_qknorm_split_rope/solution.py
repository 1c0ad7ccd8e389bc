"""LTX-2's attention front end: RMSNorm of q and k over all their heads, then the halves of each head turned by angles.

CUDA C++ (solution.cu) for contiguous bf16 with heads of 16 to 256 columns, a power of two: a launch for q and k, which
rounds where the eager expression does. Triton (portable.py) for every other dtype, width, stride and address, and on a
CPU. What a call needs is worked out once for every form of the arguments and kept: the rows of audio are done in 2 us.
"""

from __future__ import annotations

import torch
from checks import check
from portable import norm_and_turn

from harness.cuda import Plans, load, outputs_like

MOST_COLS = 8192
"""Columns that a thread block of solution.cu keeps in registers."""
MOST_EACH = 4
"""Vectors of a row to a thread, where there are many rows; more take so many registers that fewer are in flight."""
FEW_ROWS = 4
"""Of a multiprocessor. They are all latency: a thread for every vector."""
ONE_SIDE = (int,) * 9
"""Of q or of k: five addresses, tokens, and the strides of the tables over batch, heads and tokens."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()
_address = torch.Tensor.data_ptr


def ltx2_qknorm_split_rope(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin, eps):
    """New tensors as q and k, [B, S, heads * head_dim]; the tables are [B, heads, S, head_dim / 2], of any strides."""
    if _SEVERAL_GPUS and q.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(q.get_device()):
            return ltx2_qknorm_split_rope(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin, eps)
    given = q, q_norm_weight, q_cos, q_sin, k, k_norm_weight, k_cos, k_sin
    for same_form, launch, outputs, of_q, of_k in _plans.get((q.shape, k.shape), ()):
        if same_form(*given):
            # spelled out: loops and slices take half a microsecond more
            a, b, c, d, e, f, g, h = map(_address, given)
            if launch is None or (a | b | c | d | e | f | g | h) & 15:
                return norm_and_turn(*given[:4], eps), norm_and_turn(*given[4:], eps)
            q_out, k_out = outputs[0](), outputs[1]()
            launch(a, b, c, d, q_out.data_ptr(), *of_q, e, f, g, h, k_out.data_ptr(), *of_k, float(eps))
            return q_out, k_out
    _plans.keep((q.shape, k.shape), given, _plan(*given))
    return ltx2_qknorm_split_rope(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin, eps)


def _plan(q, q_norm_weight, q_cos, q_sin, k, k_norm_weight, k_cos, k_sin):
    """The launch for arguments of this form, what makes its outputs, and its numbers for q and for k.

    No launch where only Triton will do.
    """
    check(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin)
    batch, q_tokens, cols = q.shape
    k_tokens, head_dim = k.shape[1], 2 * q_cos.shape[3]
    steps = _table_steps(q_cos, q_sin), _table_steps(k_cos, k_sin)
    tensors = (q, k, q_norm_weight, k_norm_weight)
    if (
        not q.is_cuda
        or not batch * (q_tokens + k_tokens)
        or q.dtype != torch.bfloat16
        or not all(tensor.is_contiguous() for tensor in tensors)
        or head_dim not in (16, 32, 64, 128, 256)
        or cols > MOST_COLS
        or batch >= 2**16
        or q_tokens + k_tokens >= 2**31
        or None in steps
    ):
        return None, (), (), ()
    vectors, rows = cols // 8, batch * (q_tokens + k_tokens)
    few = rows <= FEW_ROWS * torch.cuda.get_device_properties(q.device).multi_processor_count
    threads = next(n for n in (32, 64, 128, 256, 512, 1024) if -(-vectors // n) <= (1 if few else MOST_EACH))
    kernel = _CU.get(f"norm_and_turn<{cols}, {head_dim}, {threads}, {str(few).lower()}>")
    launch = kernel.prepared((q_tokens + k_tokens, batch), threads, (*ONE_SIDE, *ONE_SIDE, float))
    outputs = outputs_like(q, torch.contiguous_format), outputs_like(k, torch.contiguous_format)
    return launch, outputs, (q_tokens, *steps[0]), (k_tokens, *steps[1])


def _table_steps(cos, sin):
    """Strides over batch, heads and tokens, 0 where there is one; None where cos and sin differ or are no vectors."""
    steps = [
        [stride if length > 1 else 0 for length, stride in zip(table.shape[:3], table.stride()[:3], strict=True)]
        for table in (cos, sin)
    ]
    if steps[0] != steps[1] or cos.stride(3) != 1 or sin.stride(3) != 1 or any(step % 8 for step in steps[0]):
        return None
    return steps[0]
