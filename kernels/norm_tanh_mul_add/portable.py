"""The same in Triton, for every norm, bias, layout of scale and shift, stride and alignment, and for a CPU."""

from __future__ import annotations

import math

import triton
import triton.language as tl

INTERPRETED_ROWS = 16
"""Of a program: the interpreter is slow by the program."""


@triton.jit
def _normed(
    tile, weight, bias, column, inside, cols, eps, LAYER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr
):
    if LAYER:
        tile = tl.where(inside, tile - (tl.sum(tile, axis=1) / cols)[:, None], 0.0)
        tile = tl.where(inside, tile - (tl.sum(tile, axis=1) / cols)[:, None], 0.0)  # what rounding the mean left
    tile = tile * (1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / cols + eps))[:, None]
    if WEIGHT:
        tile *= tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        tile += tl.load(bias + column, mask=column < cols, other=0.0).to(tl.float32)[None, :]
    return tile


@triton.jit
def _modulated_rows(
    x, weight, bias, scale, shift, weight2, bias2, scale2, y, y2,
    rows, tokens, vectors, x_batch, x_token, scale_batch, scale_token, shift_batch, shift_token,
    scale2_batch, scale2_token, eps, V: tl.constexpr,
    LAYER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, WEIGHT2: tl.constexpr, BIAS2: tl.constexpr,
    TWICE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Widths and steps come as so many vectors of V: all that Triton checks is whether 16 divides a number.
    cols = vectors * V
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    batch, token, column = (row // tokens)[:, None] * V, (row % tokens)[:, None] * V, tl.arange(0, BLOCK)
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


def modulated_rows(x, weight, bias, scale, shift, weight2, bias2, scale2, y, y2, is_layer, eps):
    """y2 is None for the single form."""
    batch, tokens, cols = x.shape
    block, is_dual = triton.next_power_of_2(cols), y2 is not None
    together = 1 if x.is_cuda else INTERPRETED_ROWS
    steps = [step for tensor in (x, scale, shift, scale2 if is_dual else scale) for step in _steps(tensor)]
    present = [tensor is not None for tensor in (weight, bias, weight2, bias2)]
    shared = math.gcd(16, cols, *steps)
    _modulated_rows[(triton.cdiv(batch * tokens, together),)](
        x, weight, bias, scale, shift, weight2, bias2, scale2, y, y2, batch * tokens, tokens, cols // shared,
        *(step // shared for step in steps), eps, shared, is_layer, *present, is_dual, together, block,
        num_warps=min(max(block // 512, 1), 16),
    )  # fmt: skip


def _steps(tensor):
    """Elements from batch to batch and from token to token; none where one is there for all."""
    return [0 if length == 1 else step for length, step in zip(tensor.shape[:2], tensor.stride()[:2], strict=True)]
