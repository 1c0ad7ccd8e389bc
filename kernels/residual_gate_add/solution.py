"""residual + update * gate, with a gate for every element, for every batch or for all rows; and b + a, where a table a
is added to every frame of b. Either is computed unrounded and rounded once.

CUDA C++ (solution.cu) where tensors begin at a multiple of 16 bytes, Triton (portable.py) elsewhere and on a CPU. To
both a table that is added is a row of a gate: what serves how many rows is all that sets the variants apart. The launch
path is short because 2 MB are summed in 2 us: what the form of the arguments decides, is decided once and kept.
"""

from __future__ import annotations

import portable
import torch

from harness.cuda import Plans, load, outputs_like

GATED, BROADCAST = "residual_gate_add", "broadcast_add_4d"
IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
LARGEST_BLOCK = 1024
BLOCKS_OF_FEW_ROWS = 100
"""fuse_scale_shift found few rows fastest as one wave of large blocks, and the size of a block irrelevant for many."""
WIDE_FROM = 32 << 20
"""Bytes of the residual from which on a thread keeps its part of the gate for several rows."""
ROWS_EACH = 2

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_gated_plans, _broadcast_plans = Plans(), Plans()


def residual_gate_add(variant, residual=None, update=None, gate=None, a=None, b=None):
    """A new tensor of the shape of residual, or of b."""
    if _SEVERAL_GPUS:
        first = b if residual is None else residual
        if first is not None and first.get_device() not in (-1, torch.cuda.current_device()):
            with torch.cuda.device(first.get_device()):
                return _variant(variant)(*((residual, update, gate) if variant == GATED else (a, b)))
    if variant == GATED:
        return _gated(residual, update, gate)
    return _variant(variant)(a, b)


def _variant(variant):
    if variant not in (GATED, BROADCAST):
        raise ValueError(f"variant {variant!r} is neither {GATED!r} nor {BROADCAST!r}")
    return _gated if variant == GATED else _broadcast


def _gated(residual, update, gate):
    if residual is None or update is None or gate is None:
        raise ValueError(f"{GATED} takes residual, update and gate; one of them is None")
    for same_form, launch, numbers, output, gate_aligned, sizes in _gated_plans.get(residual.shape, ()):
        if same_form(residual, update, gate):
            residual_at, update_at, gate_at = residual.data_ptr(), update.data_ptr(), gate.data_ptr()
            if launch is None or (residual_at | update_at | gate_at * gate_aligned) & 15:
                return portable.summed(residual, update, gate, *sizes)
            out = output()
            launch(residual_at, update_at, gate_at, out.data_ptr(), *numbers)
            return out
    _check_gated(residual, update, gate)
    batch, tokens, cols = residual.shape
    per_gate = 1 if gate.shape == residual.shape else tokens if gate.shape[0] == batch else batch * tokens
    plan = _plan(residual, "GATED", batch * tokens, cols, per_gate)
    _gated_plans.keep(residual.shape, (residual, update, gate), plan)
    return _gated(residual, update, gate)


def _broadcast(a, b):
    if a is None or b is None:
        raise ValueError(f"{BROADCAST} takes a and b; one of them is None")
    for same_form, launch, numbers, output, table_aligned, sizes in _broadcast_plans.get(b.shape, ()):
        if same_form(a, b):
            a_at, b_at = a.data_ptr(), b.data_ptr()
            if launch is None or (b_at | a_at * table_aligned) & 15:
                return portable.summed(b, None, a, *sizes)
            out = output()
            launch(b_at, 0, a_at, out.data_ptr(), *numbers)
            return out
    _check_broadcast(a, b)
    _, frames, parts, cols = b.shape
    _broadcast_plans.keep(b.shape, (a, b), _plan(b, "ADDED", frames, parts * cols, frames))
    return _broadcast(a, b)


def _plan(first, sum_, rows, cols, per_factor):
    """The launch with its numbers, what makes the output, whether the factor must be aligned, and Triton's sizes.

    A row of the factor serves `per_factor` rows.
    """
    sizes = (rows, cols, max(per_factor, 1))
    elements, width = rows * cols, 16 // first.element_size()
    full, batched = per_factor == 1, 1 < per_factor < rows
    span = per_factor * cols if batched else elements  # what one grid of blocks takes
    if (
        not first.is_cuda
        or not 0 < elements < width << 32
        or (batched and (span % width or elements // span >= 1 << 16))
    ):
        return None, (), None, 1, sizes
    output, kind = outputs_like(first, torch.contiguous_format), IN_CUDA[first.dtype]
    batches, is_batched = elements // span, str(batched).lower()
    threads = cols // width
    if not full and cols % width == 0 and 64 <= threads <= 1024 and elements * first.element_size() >= WIDE_FROM:
        tokens = span // cols
        kernel = _CU.get(f"wide<{kind}, {sum_}, {cols}, {ROWS_EACH}, {is_batched}>")
        launch = kernel.prepared((-(-tokens // ROWS_EACH), batches), threads, (int,) * 5)
        return launch, (tokens,), output, 1, sizes
    vectors, rest = divmod(span, width)
    kernel = _CU.get(f"flat<{kind}, {sum_}, {0 if full else cols}, {rest}, {is_batched}>")
    workers = vectors + (rest > 0)
    threads = min(LARGEST_BLOCK, -(-workers // (BLOCKS_OF_FEW_ROWS * 128)) * 128)
    launch = kernel.prepared((-(-workers // threads), batches), threads, (int,) * 6)
    return launch, (vectors, span), output, int(full or cols % width == 0), sizes


def _check_gated(residual, update, gate):
    if residual.dim() != 3:
        raise ValueError(f"residual has shape {list(residual.shape)}, expected [B, L, D]")
    if update.shape != residual.shape:
        raise ValueError(f"update has shape {list(update.shape)}, residual has {list(residual.shape)}")
    batch, _, cols = residual.shape
    if gate.shape != residual.shape and tuple(gate.shape) not in ((batch, 1, cols), (1, 1, cols)):
        raise ValueError(f"gate of shape {list(gate.shape)} is neither {list(residual.shape)} nor one row of {cols}")
    _check_alike({"residual": residual, "update": update, "gate": gate})


def _check_broadcast(a, b):
    if b.dim() != 4 or b.shape[0] != 1:
        raise ValueError(f"b has shape {list(b.shape)}, expected [1, S, P, D]")
    if tuple(a.shape) != (1, 1, *b.shape[2:]):
        raise ValueError(f"a has shape {list(a.shape)}, expected {[1, 1, *b.shape[2:]]} for this b")
    _check_alike({"b": b, "a": a})


def _check_alike(tensors):
    """Of one float dtype, on one device, without gaps."""
    (leading, first), *_ = tensors.items()
    if first.dtype not in IN_CUDA:
        raise ValueError(f"{leading} is {first.dtype}; float32, bfloat16 and float16 are taken")
    for name, tensor in tensors.items():
        if tensor.dtype != first.dtype or tensor.device != first.device:
            here = f"{first.dtype} on {first.device}"
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, but {leading} {here}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} has strides {tensor.stride()} for shape {list(tensor.shape)}; pass it contiguous")
