"""norm(x) * tanh(scale) + shift over rows, and the dual form, which normalises that again and multiplies by 1 + scale2.

Statistics and arithmetic are fp32; the normalised row is rounded to the dtype of x before it is multiplied, and the
second statistics are those of the rounded first result: both as production has it.

CUDA C++ (solution.cu) for what production runs: RMSNorm without a bias, scale the same for all rows, shift a tensor
like x. Triton for every other form, and on a CPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from harness.cuda import Plans, load, outputs_like

SINGLE, DUAL = "norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale"
IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
COLUMNS, MOST_COLUMNS = 256, 8192
"""Rows are a multiple of the first and no longer than the second, as upstream has it."""

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
    for same_form, launch, rows, output in _plans.get(key, ()):
        if same_form(*given):
            x_at, scale_at, shift_at = x.data_ptr(), scale.data_ptr(), shift.data_ptr()
            weight_at = 0 if weight is None else weight.data_ptr()
            weight2_at = 0 if weight2 is None else weight2.data_ptr()
            scale2_at = 0 if scale2 is None else scale2.data_ptr()
            if launch is None or (x_at | weight_at | scale_at | shift_at | weight2_at | scale2_at) & 15:
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
    """The launch for arguments of this form, its rows and what makes an output; no launch where only Triton will do."""
    _check(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, variant)
    rows, cols, dual = x.shape[0] * x.shape[1], x.shape[2], variant == DUAL
    one_for_all = all(tensor is None or tensor.numel() == cols for tensor in (scale, scale2))
    packed = all(tensor is None or tensor.is_contiguous() for tensor in (x, scale, shift, scale2))
    production = norm_type == "rms" and bias is None and bias2 is None and shift.shape == x.shape
    if not (x.is_cuda and production and one_for_all and packed and 0 < rows < 2**31):
        return None, rows, None
    each, threads = _share(cols * x.element_size() // 16)
    gains = [str(tensor is not None).lower() for tensor in (weight, weight2)]
    name = f"modulated_rows<{IN_CUDA[x.dtype]}, {each}, {threads}, {str(dual).lower()}, {', '.join(gains)}>"
    launch = _CU.get(name).prepared(rows, threads, (*[int] * 9, float))
    return launch, rows, outputs_like(x)


def _share(vectors):
    """16-byte vectors to a thread and threads to a row: five warps wait less for each other than fifteen."""
    for each in range(1, 9):
        if vectors % (32 * each) == 0 and vectors // each <= 160:
            return each, vectors // each
    each = 1 if vectors <= 1024 else 2
    return each, vectors // each


def _check(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, variant):
    if variant not in (SINGLE, DUAL):
        raise ValueError(f"variant {variant!r} is neither {SINGLE} nor {DUAL}")
    if norm_type not in ("rms", "layer"):
        raise ValueError(f"norm_type {norm_type!r} is neither rms nor layer")
    if x.dtype not in IN_CUDA:
        raise ValueError(f"x is {x.dtype}; norm_tanh_mul_add takes float32, bfloat16 and float16")
    if x.ndim != 3 or x.shape[2] % COLUMNS or not 0 < x.shape[2] <= MOST_COLUMNS or (x.numel() and x.stride(2) != 1):
        needs = f"batch, tokens and up to {MOST_COLUMNS} packed columns, a multiple of {COLUMNS}"
        raise ValueError(f"x of shape {list(x.shape)}: it must have {needs}")
    if (variant == DUAL) != (scale2 is not None) or (variant == SINGLE and (weight2 is not None or bias2 is not None)):
        raise ValueError("the dual form takes scale2, and if need be weight2 and bias2; the single form none of them")
    for name, vector in (("weight", weight), ("bias", bias), ("weight2", weight2), ("bias2", bias2)):
        if vector is not None and (vector.shape != x.shape[2:] or not vector.is_contiguous()):
            raise ValueError(f"{name} of shape {list(vector.shape)}: rows of {x.shape[2]} take a packed one as long")
    modulation = {"scale": scale, "shift": shift} | ({"scale2": scale2} if variant == DUAL else {})
    for name, tensor in modulation.items():
        if tensor.ndim != 3 or tensor.shape[2] != x.shape[2] or (tensor.numel() and tensor.stride(2) != 1):
            raise ValueError(f"{name} of shape {list(tensor.shape)}: three dimensions and x's packed columns are taken")
        if any(length not in (1, whole) for length, whole in zip(tensor.shape[:2], x.shape[:2], strict=True)):
            raise ValueError(f"{name} of shape {list(tensor.shape)} cannot be broadcast to {list(x.shape)}")
    for tensor in (weight, bias, scale, shift, weight2, bias2, scale2):
        if tensor is not None and (tensor.dtype != x.dtype or tensor.device != x.device):
            raise ValueError(f"a {tensor.dtype} tensor on {tensor.device} beside an x of {x.dtype} on {x.device}")


@triton.jit
def _normed(
    tile, weight, bias, column, inside, cols, eps, LAYER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr
):
    if LAYER:
        tile = tl.where(inside, tile - (tl.sum(tile, axis=1) / cols)[:, None], 0.0)
    tile = tile * (1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / cols + eps))[:, None]
    if WEIGHT:
        tile *= tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        tile += tl.load(bias + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    return tile


@triton.jit
def _modulated_rows(
    x, weight, bias, scale, shift, weight2, bias2, scale2, y, y2,
    rows, tokens, cols, x_batch, x_token, scale_batch, scale_token, shift_batch, shift_token,
    scale2_batch, scale2_token, eps, LAYER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    WEIGHT2: tl.constexpr, BIAS2: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    batch, token, column = (row // tokens)[:, None], (row % tokens)[:, None], tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < cols)[None, :]
    kind = y.dtype.element_ty
    tile = tl.load(x + batch * x_batch + token * x_token + column[None, :], mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(scale + batch * scale_batch + token * scale_token + column[None, :], mask=inside, other=0.0)
    add = tl.load(shift + batch * shift_batch + token * shift_token + column[None, :], mask=inside, other=0.0)
    tanh = 2.0 * tl.sigmoid(2.0 * gate.to(tl.float32)) - 1.0  # libdevice's own cannot be interpreted
    normal = _normed(tile, weight, bias, column, inside, cols, eps, LAYER, WEIGHT, BIAS).to(kind).to(tl.float32)
    first = (normal * tanh + add.to(tl.float32)).to(kind)
    place = row[:, None] * cols + column[None, :]
    tl.store(y + place, first, mask=inside)
    if TWICE:
        again = tl.where(inside, first.to(tl.float32), 0.0)
        normal = _normed(again, weight2, bias2, column, inside, cols, eps, LAYER, WEIGHT2, BIAS2).to(kind)
        gain = tl.load(scale2 + batch * scale2_batch + token * scale2_token + column[None, :], mask=inside, other=0.0)
        second = normal.to(tl.float32) * (1.0 + gain.to(tl.float32))
        tl.store(y2 + place, second.to(kind), mask=inside)


def _in_triton(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps, variant):
    (batch, tokens, cols), dual = x.shape, variant == DUAL
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    y2 = torch.empty_like(y) if dual else None
    if y.numel():
        block = triton.next_power_of_2(cols)
        together = 1 if x.is_cuda else 16  # the interpreter is slow by the program
        steps = [step for tensor in (x, scale, shift, scale2 if dual else scale) for step in _steps(tensor)]
        present = [tensor is not None for tensor in (weight, bias, weight2, bias2)]
        _modulated_rows[(triton.cdiv(batch * tokens, together),)](
            x, weight, bias, scale, shift, weight2, bias2, scale2, y, y2, batch * tokens, tokens, cols, *steps, eps,
            norm_type == "layer", *present, dual, together, block, num_warps=min(max(block // 512, 1), 8),
        )  # fmt: skip
    return (y, y2) if dual else y


def _steps(tensor):
    """Elements from batch to batch and from token to token; none where one is there for all."""
    return [0 if length == 1 else step for length, step in zip(tensor.shape[:2], tensor.stride()[:2], strict=True)]
