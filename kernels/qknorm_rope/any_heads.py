"""The path for every layout, dtype and machine, in Triton: a program takes some heads of q or of k into registers.

A tile is [tokens, heads, lanes], so that nothing is divided and the angles of a token are read once for all its heads.
Triton must know what widths and strides are multiples of to load more than one element at a time: widths are constant,
and strides come as multiples of STEP.
"""

from __future__ import annotations

from math import gcd

import triton
import triton.language as tl

TILE, INTERPRETED_TILE = 2048, 1 << 20
"""Elements of a program; the interpreter is slow by the program."""


@triton.jit
def _wide(value):
    if value.dtype == tl.bfloat16:  # the upper half of a float: said so, because the interpreter converts at a crawl
        value = (value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return value.to(tl.float32)


@triton.jit
def _pairs(tile, TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr):
    """The even and the odd lanes: loaded as one tile, they come in vectors."""
    return tl.split(tl.reshape(tile, [TOKENS, HEADS, PAIRS, 2]))


@triton.jit
def _some_heads(
    x, weight, cache, positions, tokens, heads, eps,
    token_step, head_step, lane_step, weight_step, cache_step, cache_lane_step, positions_step,
    HEAD_DIM: tl.constexpr, ROPE_DIM: tl.constexpr, NEOX: tl.constexpr, STEP: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr, STILL: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(tl.maximum(heads, 1), HEADS)
    token = (tl.program_id(0) // tiles).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    head = (tl.program_id(0) % tiles).to(tl.int64) * HEADS + tl.arange(0, HEADS)
    at_token = token < tokens
    inside = at_token[:, None, None] & (head < heads)[None, :, None]
    start = x + token[:, None, None] * token_step * STEP + head[None, :, None] * head_step * STEP
    angle = tl.load(positions + token * positions_step, mask=at_token, other=0).to(tl.int64)[:, None, None] * cache_step
    half: tl.constexpr = ROPE_DIM // 2
    pair = tl.arange(0, PAIRS).to(tl.int64)[None, None, :]  # in 32 bits its product with a stride may not fit
    known = at_token[:, None, None] & (pair < half)
    cos = tl.load(cache + angle + pair * cache_lane_step, mask=known, other=0.0)
    sin = tl.load(cache + angle + (pair + half) * cache_lane_step, mask=known, other=0.0)
    if NEOX:
        turning = inside & (pair < half)
        gain_one = _wide(tl.load(weight + pair * weight_step, mask=pair < half, other=0.0))
        gain_other = _wide(tl.load(weight + (pair + half) * weight_step, mask=pair < half, other=0.0))
        one = _wide(tl.load(start + pair * lane_step, mask=turning, other=0.0))
        other = _wide(tl.load(start + (pair + half) * lane_step, mask=turning, other=0.0))
    else:
        lane = tl.arange(0, 2 * PAIRS).to(tl.int64)[None, None, :]
        turning = inside & (lane < ROPE_DIM)
        gain = _wide(tl.load(weight + lane * weight_step, mask=lane < ROPE_DIM, other=0.0))
        gain_one, gain_other = _pairs(gain, 1, 1, PAIRS)
        both = _wide(tl.load(start + lane * lane_step, mask=turning, other=0.0))
        one, other = _pairs(both, TOKENS, HEADS, PAIRS)
    squares = tl.sum(one * one + other * other, axis=2)
    if STILL:
        still = ROPE_DIM + tl.arange(0, STILL).to(tl.int64)[None, None, :]
        resting = inside & (still < HEAD_DIM)
        rest = _wide(tl.load(start + still * lane_step, mask=resting, other=0.0))
        squares += tl.sum(rest * rest, axis=2)
    scale = (1.0 / tl.sqrt(squares / HEAD_DIM + eps))[:, :, None]
    one *= scale * gain_one
    other *= scale * gain_other
    new_one, new_other = one * cos - other * sin, other * cos + one * sin
    if NEOX:
        tl.store(start + pair * lane_step, new_one.to(x.dtype.element_ty), mask=turning)
        tl.store(start + (pair + half) * lane_step, new_other.to(x.dtype.element_ty), mask=turning)
    else:
        made = tl.reshape(tl.join(new_one, new_other), [TOKENS, HEADS, 2 * PAIRS])
        tl.store(start + lane * lane_step, made.to(x.dtype.element_ty), mask=turning)
    if STILL:
        rest *= scale * _wide(tl.load(weight + still * weight_step, mask=still < HEAD_DIM, other=0.0))
        tl.store(start + still * lane_step, rest.to(x.dtype.element_ty), mask=resting)


@triton.jit
def _q_and_k(
    q, k, q_weight, k_weight, cache, positions, tokens, q_heads, k_heads, eps,
    q_token, q_head, q_lane, k_token, k_head, k_lane, q_weight_step, k_weight_step, cache_step, cache_lane_step,
    positions_step, HEAD_DIM: tl.constexpr, ROPE_DIM: tl.constexpr, NEOX: tl.constexpr, STEP: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr, STILL: tl.constexpr,
):  # fmt: skip
    if tl.program_id(1) == 0:
        _some_heads(
            q, q_weight, cache, positions, tokens, q_heads, eps, q_token, q_head, q_lane, q_weight_step, cache_step,
            cache_lane_step, positions_step, HEAD_DIM, ROPE_DIM, NEOX, STEP, TOKENS, HEADS, PAIRS, STILL,
        )  # fmt: skip
    else:
        _some_heads(
            k, k_weight, cache, positions, tokens, k_heads, eps, k_token, k_head, k_lane, k_weight_step, cache_step,
            cache_lane_step, positions_step, HEAD_DIM, ROPE_DIM, NEOX, STEP, TOKENS, HEADS, PAIRS, STILL,
        )  # fmt: skip


def any_heads(q, k, q_weight, k_weight, cos_sin_cache, positions, is_neox, eps):
    tokens, q_heads, head_dim = q.shape
    k_heads, rope_dim = k.shape[1], cos_sin_cache.shape[1]
    most = max(q_heads, k_heads)
    if not tokens * most:
        return
    pairs, still = triton.next_power_of_2(rope_dim // 2), head_dim - rope_dim
    tile = (TILE if q.is_cuda else INTERPRETED_TILE) // triton.next_power_of_2(head_dim)
    heads = max(1, min(most & -most, tile))  # the largest power of two that leaves no tile uneven
    together = max(1, min(triton.next_power_of_2(tokens), tile // heads))
    steps = (*q.stride()[:2], *k.stride()[:2])
    step = gcd(16, *steps)
    q_token, q_head, k_token, k_head = (each // step for each in steps)
    _q_and_k[(triton.cdiv(tokens, together) * triton.cdiv(most, heads), 2)](
        q, k, q_weight, k_weight, cos_sin_cache, positions, tokens, q_heads, k_heads, float(eps),
        q_token, q_head, q.stride(2), k_token, k_head, k.stride(2), q_weight.stride(0), k_weight.stride(0),
        *cos_sin_cache.stride(), positions.stride(0), HEAD_DIM=head_dim, ROPE_DIM=rope_dim, NEOX=is_neox, STEP=step,
        TOKENS=together, HEADS=heads, PAIRS=pairs, STILL=triton.next_power_of_2(still) if still else 0,
    )  # fmt: skip
