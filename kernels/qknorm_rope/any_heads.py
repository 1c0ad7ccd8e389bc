"""The path for every layout, dtype and machine, in Triton: a program takes some heads of q or of k into registers."""

from __future__ import annotations

import triton
import triton.language as tl

TILE, INTERPRETED_TILE = 2048, 1 << 20
"""Elements of a program; the interpreter is slow by the program."""


@triton.jit
def _some_heads(
    x, weight, cache, positions, tokens, heads, head_dim, rope_dim, eps,
    token_step, head_step, lane_step, weight_step, cache_step, cache_lane_step, positions_step,
    NEOX: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr, STILL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token = row // tl.maximum(heads, 1)
    inside = (token < tokens) & (heads > 0)
    start = x + (token * token_step + (row - token * heads) * head_step)[:, None]
    angle = tl.load(positions + token * positions_step, mask=inside, other=0).to(tl.int64)[:, None] * cache_step
    half = rope_dim // 2
    pair = tl.arange(0, PAIRS)[None, :]
    turning = inside[:, None] & (pair < half)
    one = pair if NEOX else 2 * pair
    other = pair + half if NEOX else 2 * pair + 1
    first = tl.load(start + one * lane_step, mask=turning, other=0.0).to(tl.float32)
    second = tl.load(start + other * lane_step, mask=turning, other=0.0).to(tl.float32)
    squares = tl.sum(first * first + second * second, axis=1)
    if STILL:
        lane = rope_dim + tl.arange(0, STILL)[None, :]
        resting = inside[:, None] & (lane < head_dim)
        rest = tl.load(start + lane * lane_step, mask=resting, other=0.0).to(tl.float32)
        squares += tl.sum(rest * rest, axis=1)
    scale = (1.0 / tl.sqrt(squares / head_dim + eps))[:, None]
    cos = tl.load(cache + angle + pair * cache_lane_step, mask=turning, other=0.0)
    sin = tl.load(cache + angle + (pair + half) * cache_lane_step, mask=turning, other=0.0)
    first *= scale * tl.load(weight + one * weight_step, mask=pair < half, other=0.0).to(tl.float32)
    second *= scale * tl.load(weight + other * weight_step, mask=pair < half, other=0.0).to(tl.float32)
    tl.store(start + one * lane_step, (first * cos - second * sin).to(x.dtype.element_ty), mask=turning)
    tl.store(start + other * lane_step, (second * cos + first * sin).to(x.dtype.element_ty), mask=turning)
    if STILL:
        rest *= scale * tl.load(weight + lane * weight_step, mask=lane < head_dim, other=0.0).to(tl.float32)
        tl.store(start + lane * lane_step, rest.to(x.dtype.element_ty), mask=resting)


@triton.jit
def _q_and_k(
    q, k, q_weight, k_weight, cache, positions, tokens, q_heads, k_heads, head_dim, rope_dim, eps,
    q_token, q_head, q_lane, k_token, k_head, k_lane, q_weight_step, k_weight_step, cache_step, cache_lane_step,
    positions_step, NEOX: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr, STILL: tl.constexpr,
):  # fmt: skip
    if tl.program_id(1) == 0:
        _some_heads(
            q, q_weight, cache, positions, tokens, q_heads, head_dim, rope_dim, eps, q_token, q_head, q_lane,
            q_weight_step, cache_step, cache_lane_step, positions_step, NEOX, ROWS, PAIRS, STILL,
        )  # fmt: skip
    else:
        _some_heads(
            k, k_weight, cache, positions, tokens, k_heads, head_dim, rope_dim, eps, k_token, k_head, k_lane,
            k_weight_step, cache_step, cache_lane_step, positions_step, NEOX, ROWS, PAIRS, STILL,
        )  # fmt: skip


def any_heads(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps):
    tokens, q_heads, head_dim = q.shape
    k_heads, rope_dim = k.shape[1], cos_sin_cache.shape[1]
    rows = tokens * max(q_heads, k_heads)
    if not rows:
        return
    pairs, still = triton.next_power_of_2(rope_dim // 2), head_dim - rope_dim
    tile = TILE if q.is_cuda else min(INTERPRETED_TILE, rows * head_dim)
    together = max(1, triton.next_power_of_2(tile // head_dim))
    _q_and_k[(triton.cdiv(rows, together), 2)](
        q, k, q_weight, k_weight, cos_sin_cache, positions, tokens, q_heads, k_heads, head_dim, rope_dim, eps,
        *q.stride(), *k.stride(), q_weight.stride(0), k_weight.stride(0), *cos_sin_cache.stride(), positions.stride(0),
        NEOX=is_neox, ROWS=together, PAIRS=pairs, STILL=triton.next_power_of_2(still) if still else 0,
    )  # fmt: skip
