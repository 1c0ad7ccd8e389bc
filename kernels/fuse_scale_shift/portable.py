"""Every variant in Triton, for any layout, dtype and size that the task allows.

A program takes a tile of whole rows. Broadcast operands are read through strides that may be 0, so nothing is copied to
make shapes agree; a [B, F, 1, C] operand steps once every L / F tokens.

Triton knows of a number at most that 16 divides it. So columns and strides come in steps of a power of two that divides
all of them, which is a constant: what it divides, the compiler can load at once.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

LONGEST_STEP = 16
TILE = 4096
"""Elements of a program where rows are short."""
INTERPRETED_TILE = 1 << 17
"""On a CPU the interpreter pays by the operation, whatever its size."""
LONGEST_ROW = 64 * 1024
"""Bytes of a row that a LayerNorm program can hold."""


@triton.jit
def _row(MANY: tl.constexpr, ROWS: tl.constexpr):
    """The rows of a program, in 64 bits only if there are as many: a division in 64 takes a hundred instructions."""
    first = tl.program_id(0)
    if MANY:
        first = first.to(tl.int64)
    return first * ROWS + tl.arange(0, ROWS)


@triton.jit
def _operand(pointer, batch, token, column, inside, batch_step, token_step, column_step, tokens_a_step, STEP):
    row = (batch * batch_step + (token // tokens_a_step).to(tl.int64) * token_step) * STEP
    at = pointer + row[:, None] + column[None, :].to(tl.int64) * column_step
    return tl.load(at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _scale_shift(
    x, scale, shift, out, rows, tokens, steps, constant,
    scale_batch, scale_token, scale_column, scale_tokens,
    shift_batch, shift_token, shift_column, shift_tokens,
    MANY: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    cols = steps * STEP
    row = _row(MANY, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < cols)
    place = (row.to(tl.int64) * cols)[:, None] + column[None, :]
    batch, token = (row // tokens).to(tl.int64), row % tokens
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    factor = _operand(scale, batch, token, column, inside, scale_batch, scale_token, scale_column, scale_tokens, STEP)
    added = _operand(shift, batch, token, column, inside, shift_batch, shift_token, shift_column, shift_tokens, STEP)
    tl.store(out + place, (value * (factor + constant) + added).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _chosen(first, second, pick, batch, column, inside, first_step, second_step, STEP):
    one_at = second + (batch * second_step * STEP)[:, None] + column[None, :]
    zero_at = first + (batch * first_step * STEP)[:, None] + column[None, :]
    one = tl.load(one_at, mask=inside & pick[:, None], other=0.0)
    zero = tl.load(zero_at, mask=inside & (pick[:, None] == 0), other=0.0)
    return tl.where(pick[:, None], one, zero)


@triton.jit
def _select01(
    x, residual, residual_gate, weight, bias, scale0, shift0, gate0, scale1, shift1, gate1, index,
    out, residual_out, gate_out, rows, tokens, steps, eps,
    scale0_step, shift0_step, gate0_step, scale1_step, shift1_step, gate1_step,
    RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    MANY: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    cols = steps * STEP
    row = _row(MANY, ROWS)
    column = tl.arange(0, BLOCK)
    present = column[None, :] < cols
    inside = (row[:, None] < rows) & present
    place = (row.to(tl.int64) * cols)[:, None] + column[None, :]
    batch = (row // tokens).to(tl.int64)
    pick = tl.load(index + row, mask=row < rows, other=0) != 0

    gate = _chosen(gate0, gate1, pick, batch, column, inside, gate0_step, gate1_step, STEP)
    tl.store(gate_out + place, gate, mask=inside)
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        weighed = tl.load(residual_gate + place, mask=inside, other=0.0).to(tl.float32) * value
        value = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32) + weighed
        tl.store(residual_out + place, value.to(residual_out.dtype.element_ty), mask=inside)

    mean = tl.sum(value, axis=1) / cols
    centred = tl.where(present, value - mean[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / cols + eps)
    normal = centred * inverse[:, None]
    if WEIGHT:
        normal = normal * tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        normal = normal + tl.load(bias + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    scale = _chosen(scale0, scale1, pick, batch, column, inside, scale0_step, scale1_step, STEP).to(tl.float32)
    shift = _chosen(shift0, shift1, pick, batch, column, inside, shift0_step, shift1_step, STEP).to(tl.float32)
    tl.store(out + place, (normal * (1.0 + scale) + shift).to(out.dtype.element_ty), mask=inside)


def _tile(rows, block, device_type):
    """Rows a program, and its warps."""
    room = TILE if device_type != "cpu" else INTERPRETED_TILE
    together = max(1, min(room // block, triton.next_power_of_2(rows)))
    return together, min(max(together * block // 512, 1), 16)


def steps(name, operand, batch, tokens, cols):
    """Strides over batch, tokens and columns, 0 where the operand is broadcast, and tokens per step."""
    shape, stride = tuple(operand.shape), operand.stride()
    if operand.dim() == 4:
        if shape[0] not in (1, batch) or shape[2:] != (1, cols) or shape[1] < 1 or tokens % shape[1]:
            raise ValueError(f"{name} of shape {list(shape)} does not divide the {tokens} tokens of x into frames")
        return stride[0] if shape[0] > 1 else 0, stride[1], stride[3], tokens // shape[1]
    if operand.dim() == 2:
        shape, stride = (shape[0], 1, shape[1]), (stride[0], 0, stride[1])
    elif operand.dim() < 2:
        shape, stride = (1,) * (3 - len(shape)) + shape, (0,) * (3 - len(stride)) + stride
    full = (batch, tokens, cols)
    if len(shape) != 3 or any(shape[axis] not in (1, full[axis]) for axis in range(3)):
        raise ValueError(f"{name} of shape {list(operand.shape)} does not broadcast to {list(full)}")
    return (*(0 if length == 1 else step for length, step in zip(shape, stride, strict=True)), 1)


def scale_shift(x, scale, shift, scale_constant):
    batch, tokens, cols = x.shape
    scale_steps, shift_steps = steps("scale", scale, *x.shape), steps("shift", shift, *x.shape)
    step = math.gcd(LONGEST_STEP, cols, *scale_steps[:2], *shift_steps[:2])
    over = [each // step if place < 2 else each for of in (scale_steps, shift_steps) for place, each in enumerate(of)]
    out = torch.empty_like(x)
    if not out.numel():
        return out
    block = min(triton.next_power_of_2(cols), TILE)
    rows = batch * tokens
    together, warps = _tile(rows, block, x.device.type)
    grid = (triton.cdiv(rows, together), triton.cdiv(cols, block))
    _scale_shift[grid](
        x, scale, shift, out, rows, tokens, cols // step, float(scale_constant), *over,
        MANY=rows >= 1 << 31, STEP=step, ROWS=together, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return out


def _vectors(names, vectors, batch, cols):
    """[B, C] each, the columns side by side."""
    ready = []
    for name, vector in zip(names, vectors, strict=True):
        if tuple(vector.shape) not in ((batch, cols), (1, cols)):
            raise ValueError(f"{name} has shape {list(vector.shape)}, expected {[batch, cols]}")
        vector = vector if vector.stride(1) == 1 else vector.contiguous()
        ready.append(vector.expand(batch, cols))
    return ready


def _full(name, tensor, x):
    if tensor.shape != x.shape:
        raise ValueError(f"{name} has shape {list(tensor.shape)}, x has {list(x.shape)}")
    return tensor.contiguous()


def _affine(name, vector, cols):
    if vector is not None and tuple(vector.shape) != (cols,):
        raise ValueError(f"{name} has shape {list(vector.shape)}, expected {[cols]}")
    return vector if vector is None else vector.contiguous()


def select01(x, sets, index, eps, residual, residual_gate, weight, bias):
    batch, tokens, cols = x.shape
    if cols * x.element_size() > LONGEST_ROW:
        raise ValueError(f"a row of {cols} columns is longer than {LONGEST_ROW} bytes")
    if tuple(index.shape) != (batch, tokens):
        raise ValueError(f"index has shape {list(index.shape)}, expected {[batch, tokens]}")
    vectors = _vectors(("scale0", "shift0", "gate0", "scale1", "shift1", "gate1"), sets, batch, cols)
    weight, bias = _affine("weight", weight, cols), _affine("bias", bias, cols)
    with_residual = residual is not None
    if with_residual:
        residual, residual_gate = _full("residual", residual, x), _full("residual_gate", residual_gate, x)
    out, gate_out = torch.empty_like(x), torch.empty_like(x, dtype=vectors[2].dtype)
    residual_out = torch.empty_like(x) if with_residual else None
    if out.numel():
        block, rows = triton.next_power_of_2(cols), batch * tokens
        together, warps = _tile(rows, block, x.device.type)
        strides = [vector.stride(0) if batch > 1 else 0 for vector in vectors]
        step = math.gcd(LONGEST_STEP, cols, *strides)
        _select01[(triton.cdiv(rows, together),)](
            x, residual, residual_gate, weight, bias, *vectors, index.contiguous(),
            out, residual_out, gate_out, rows, tokens, cols // step, eps, *(stride // step for stride in strides),
            RESIDUAL=with_residual, WEIGHT=weight is not None, BIAS=bias is not None,
            MANY=rows >= 1 << 31, STEP=step, ROWS=together, BLOCK=block, num_warps=warps,
        )  # fmt: skip
    return (out, residual_out, gate_out) if with_residual else (out, gate_out)
