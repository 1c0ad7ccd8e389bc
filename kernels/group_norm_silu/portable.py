"""GroupNorm and SiLU in Triton: any shape, both layouts, also interpreted on a CPU. Two launches and two reads of x.

A group is cut into chunks. The first launch leaves mean and squared distances of every chunk, the second merges those
of its group and writes the chunk's output.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 2048
LEAST_CHUNK = 8 * BLOCK
MOST_CHUNKS = 1024
"""Of a group: every program of the second launch reads the moments of all of them at once."""


def group_norm_silu(x, weight, bias, num_groups, eps, last):
    """x is dense: channels-last where `last`, else contiguous."""
    out = torch.empty_like(x)
    if not out.numel():
        return out
    batch, channels = x.shape[:2]
    spatial, each = x.numel() // (batch * channels), channels // num_groups
    size = each * spatial
    chunk = max(LEAST_CHUNK, triton.next_power_of_2(triton.cdiv(size, MOST_CHUNKS)))
    chunks = triton.cdiv(size, chunk)
    moments = torch.empty(batch * num_groups, chunks, 2, dtype=torch.float32, device=x.device)
    grid = (batch * num_groups, chunks)
    block = min(BLOCK, triton.next_power_of_2(size))
    geometry = {"groups": num_groups, "channels": channels, "spatial": spatial, "EACH": each, "LAST": last}
    fixed = {"CHUNK": min(chunk, triton.next_power_of_2(size)), "BLOCK": block, "num_warps": 8 if block == BLOCK else 4}
    _moments_of_chunk[grid](x, moments, **geometry, **fixed)
    most = triton.next_power_of_2(chunks)
    _activated_chunk[grid](x, weight, bias, out, moments, eps, chunks, **geometry, **fixed, MOST=most)
    return out


@triton.jit
def _place(element, unit, groups, channels, spatial, EACH: tl.constexpr, LAST: tl.constexpr):
    """Where the elements of a group lie, and the channels they belong to."""
    batch, group = unit // groups, unit % groups
    if LAST:
        channel = group * EACH + element % EACH
        at = (batch.to(tl.int64) * spatial + element // EACH) * channels + channel
    else:
        channel = group * EACH + element // spatial
        at = unit.to(tl.int64) * EACH * spatial + element
    return at, channel


@triton.jit
def _moments_of_chunk(
    x, moments, groups, channels, spatial,
    EACH: tl.constexpr, LAST: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    unit, chunk = tl.program_id(0), tl.program_id(1)
    size = EACH * spatial
    count = tl.minimum(size - chunk * CHUNK, CHUNK)
    first = chunk * CHUNK + tl.arange(0, BLOCK)
    at, _ = _place(first, unit, groups, channels, spatial, EACH, LAST)
    begin = tl.load(x + at, mask=first < size, other=0.0).to(tl.float32)
    pivot = tl.sum(begin) / tl.minimum(count, BLOCK)  # distances from it are small, however far from zero x lies
    apart = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, CHUNK, BLOCK):
        element = first + start
        at, _ = _place(element, unit, groups, channels, spatial, EACH, LAST)
        values = tl.load(x + at, mask=element < size, other=0.0).to(tl.float32)
        distance = tl.where(element < size, values - pivot, 0.0)
        apart += distance
        squares += distance * distance
    total = tl.sum(apart)
    place = moments + (unit * tl.num_programs(1) + chunk) * 2
    tl.store(place, pivot + total / count)
    tl.store(place + 1, tl.maximum(tl.sum(squares) - total * total / count, 0.0))


@triton.jit
def _activated_chunk(
    x, weight, bias, out, moments, eps, chunks, groups, channels, spatial,
    EACH: tl.constexpr, LAST: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    unit, chunk = tl.program_id(0), tl.program_id(1)
    size = EACH * spatial
    index = tl.arange(0, MOST)
    place = moments + (unit * chunks + index) * 2
    means = tl.load(place, mask=index < chunks, other=0.0)
    squares = tl.load(place + 1, mask=index < chunks, other=0.0)
    counts = tl.where(index < chunks, tl.minimum(size - index * CHUNK, CHUNK), 0).to(tl.float32)
    pivot = tl.load(moments + unit * chunks * 2)
    apart = means - pivot
    shift = tl.sum(counts * apart) / size
    variance = tl.sum(squares + counts * (apart - shift) * (apart - shift)) / size
    mean, scale = pivot + shift, 1.0 / tl.sqrt(variance + eps)
    for start in range(0, CHUNK, BLOCK):
        element = chunk * CHUNK + start + tl.arange(0, BLOCK)
        inside = element < size
        at, channel = _place(element, unit, groups, channels, spatial, EACH, LAST)
        gain = tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
        offset = tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        values = (values - mean) * (scale * gain) + offset
        tl.store(out + at, (values * tl.sigmoid(values)).to(out.dtype.element_ty), mask=inside)
