"""norm(x) * tanh(scale) + shift over rows, and the dual form, which normalises that again and multiplies by 1 + scale2.

Statistics and arithmetic are fp32; the normalised row is rounded to the dtype of x before it is multiplied, and the
second statistics are those of the rounded first result: both as production has it.

CUDA C++ (solution.cu) for what production runs, in rows of any width: RMSNorm without a bias, scale the same for all
rows, shift a tensor like x, both at 16-byte addresses. Triton (portable.py) for every other form, and on a CPU.
"""

from __future__ import annotations

import math

import torch
from portable import modulated_rows

from harness.cuda import Plans, load, outputs_like

SINGLE, DUAL = "norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale"
IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
MOST_COLUMNS = 8192
"""More, as upstream has it, would not stay in the registers of a block."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def norm_tanh_mul_add(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps, variant):
    tensors = (x, weight, bias, scale, shift, weight2, bias2, scale2)
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return norm_tanh_mul_add(*tensors, norm_type, eps, variant)
    if scale is None or shift is None:
        raise ValueError("scale and shift must be given")
    given = (x, scale, shift) if weight is None else (x, scale, shift, weight)
    if scale2 is not None:
        given += (scale2,) if weight2 is None else (scale2, weight2)  # weight2 is refused without scale2
    if bias is not None:
        given += (bias,)
    if bias2 is not None:
        given += (bias2,)
    key = x.shape, variant, norm_type, weight is None, bias is None, weight2 is None, bias2 is None, scale2 is None
    for same_form, launch, rows, output, gains_align in _plans.get(key, ()):
        if same_form(*given):
            x_at, scale_at, shift_at = x.data_ptr(), scale.data_ptr(), shift.data_ptr()
            weight_at = 0 if weight is None else weight.data_ptr()
            weight2_at = 0 if weight2 is None else weight2.data_ptr()
            scale2_at = 0 if scale2 is None else scale2.data_ptr()
            gains_at = scale_at | weight_at | scale2_at | weight2_at
            if launch is None or (x_at | shift_at | gains_at & gains_align) & 15:
                return _in_triton(*tensors, norm_type, eps, variant)
            y = output()
            if scale2 is None:
                launch(x_at, weight_at, scale_at, shift_at, 0, 0, y.data_ptr(), 0, rows, eps)
                return y
            y2 = output()
            second_at = y2.data_ptr()
            launch(x_at, weight_at, scale_at, shift_at, weight2_at, scale2_at, y.data_ptr(), second_at, rows, eps)
            return y, y2
    _plans.keep(key, given, _plan(*tensors, norm_type, variant))
    return norm_tanh_mul_add(*tensors, norm_type, eps, variant)


def _plan(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, variant):
    """The launch for arguments of this form, its rows, what makes an output, and -1 if gains and scales have to be
    aligned as x is, 0 if not; no launch where only Triton will do."""
    _check(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, variant)
    rows, cols, dual = x.shape[0] * x.shape[1], x.shape[2], variant == DUAL
    one_for_all = all(tensor is None or tensor.numel() == cols for tensor in (scale, scale2))
    packed = all(tensor is None or tensor.is_contiguous() for tensor in (x, scale, shift, scale2))
    production = norm_type == "rms" and bias is None and bias2 is None and shift.shape == x.shape
    if not (x.is_cuda and production and one_for_all and packed and 0 < rows < 2**31):
        return None, rows, None, -1
    few = rows <= 2 * torch.cuda.get_device_properties(x.device).multi_processor_count
    threads = _threads(cols, 16 // x.element_size(), few)
    gains = [str(tensor is not None).lower() for tensor in (weight, weight2)]
    name = f"modulated_rows<{IN_CUDA[x.dtype]}, {cols}, {threads}, {str(dual).lower()}, {', '.join(gains)}>"
    launch = _CU.get(name).prepared(rows, threads, (*[int] * 9, float))
    return launch, rows, outputs_like(x), 0 if cols * x.element_size() % 16 else -1


def _threads(cols, width, few):
    """Threads to a row whose 16-byte vectors are of `width` columns: five warps wait less for each other than fifteen.
    Where threads cannot share the vectors evenly, eight warps or fewer if no thread gets more than eight vectors for
    it, with as few places left over as possible, then as near to five as possible (1920 columns of the dual form:
    33.5 us with four warps, 35.0 with eight). Few rows are all latency: a thread for every vector."""
    vectors, rest = divmod(cols, width)
    covered = (cols + 2 * width - min(width, cols & -cols) - 1) // width  # what a row touches, as in vectors.cuh
    if few:
        return min(1024, -(-covered // 32) * 32)
    even = [each for each in range(1, 9) if not rest and vectors % (32 * each) == 0 and vectors // each <= 160]
    if even:
        return vectors // even[0]
    shares = [(each, -(-covered // (32 * each)) * 32) for each in range(1, 9)]
    able = [share for share in shares if share[1] <= 256 or share == shares[-1]]
    return min(able, key=lambda share: (math.prod(share), abs(share[1] - 160)))[1]


def _check(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, variant):
    if variant not in (SINGLE, DUAL):
        raise ValueError(f"variant {variant!r} is neither {SINGLE} nor {DUAL}")
    if norm_type not in ("rms", "layer"):
        raise ValueError(f"norm_type {norm_type!r} is neither rms nor layer")
    if x.dtype not in IN_CUDA:
        raise ValueError(f"x is {x.dtype}; norm_tanh_mul_add takes float32, bfloat16 and float16")
    if x.ndim != 3 or not 0 < x.shape[2] <= MOST_COLUMNS or not _is_packed(x):
        needs = f"batch, tokens and 1 to {MOST_COLUMNS} packed columns"
        raise ValueError(f"x of shape {list(x.shape)}: it must have {needs}")
    if (variant == DUAL) != (scale2 is not None) or (variant == SINGLE and (weight2 is not None or bias2 is not None)):
        raise ValueError("the dual form takes scale2, and if need be weight2 and bias2; the single form none of them")
    for name, vector in (("weight", weight), ("bias", bias), ("weight2", weight2), ("bias2", bias2)):
        if vector is not None and (vector.shape != x.shape[2:] or not vector.is_contiguous()):
            raise ValueError(f"{name} of shape {list(vector.shape)}: rows of {x.shape[2]} take a packed one as long")
    modulation = {"scale": scale, "shift": shift} | ({"scale2": scale2} if variant == DUAL else {})
    for name, tensor in modulation.items():
        if tensor.ndim != 3 or tensor.shape[2] != x.shape[2] or not _is_packed(tensor):
            raise ValueError(f"{name} of shape {list(tensor.shape)}: three dimensions and x's packed columns are taken")
        if any(length not in (1, whole) for length, whole in zip(tensor.shape[:2], x.shape[:2], strict=True)):
            raise ValueError(f"{name} of shape {list(tensor.shape)} cannot be broadcast to {list(x.shape)}")
    for tensor in (weight, bias, scale, shift, weight2, bias2, scale2):
        if tensor is not None and (tensor.dtype != x.dtype or tensor.device != x.device):
            raise ValueError(f"a {tensor.dtype} tensor on {tensor.device} beside an x of {x.dtype} on {x.device}")


def _is_packed(rows):
    return rows.stride(-1) == 1 or rows.shape[-1] == 1 or not rows.numel()


def _in_triton(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps, variant):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    y2 = torch.empty_like(y) if variant == DUAL else None
    if y.numel():
        modulated_rows(x, weight, bias, scale, shift, weight2, bias2, scale2, y, y2, norm_type == "layer", eps)
    return y if y2 is None else (y, y2)
