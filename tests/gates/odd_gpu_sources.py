"""Honest oddities that need a GPU."""

from __future__ import annotations

from tests.gates.record import CUDA, Oddity

JOINED_STREAM = """
import torch

side = torch.cuda.Stream()

def softmax(x):
    here = torch.cuda.current_stream()
    out = torch.empty_like(x)
    half = x.shape[0] // 2
    side.wait_stream(here)
    with torch.cuda.stream(side):
        torch.softmax(x[half:], -1, out=out[half:])
    torch.softmax(x[:half], -1, out=out[:half])
    here.wait_stream(side)
    return out
"""
FORKED_STREAMS = """
import torch

sides = [torch.cuda.Stream() for _ in range(3)]
forked, joined = torch.cuda.Event(), [torch.cuda.Event() for _ in sides]

def softmax(x):
    here = torch.cuda.current_stream()
    out = torch.empty_like(x)
    own, *others = zip(x.chunk(4), out.chunk(4))
    forked.record(here)
    for side, done, (part, place) in zip(sides, joined, others):
        side.wait_event(forked)
        with torch.cuda.stream(side):
            torch.softmax(part, -1, out=place)
        done.record(side)
    torch.softmax(own[0], -1, out=own[1])
    for done in joined:
        here.wait_event(done)
    return out
"""
GRAPH_REPLAYED = """
import torch

graphs = {}

def softmax(x):
    if x.shape not in graphs:
        held = x.clone()
        torch.softmax(held, dim=-1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.softmax(held, dim=-1)
        graphs[x.shape] = held, graph, out
    held, graph, out = graphs[x.shape]
    held.copy_(x)
    graph.replay()
    return out.clone()
"""
TRITON_ROWS = """
import torch
import triton
import triton.language as tl

@triton.jit
def rows(out, x, cols, N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, N)
    value = tl.load(x + row + at, mask=at < cols, other=float("-inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + at, value / tl.sum(value, 0), mask=at < cols)
"""
TRITON = f"""{TRITON_ROWS}
def softmax(x):
    out = torch.empty_like(x)
    rows[(x.shape[0],)](out, x, x.shape[1], N=triton.next_power_of_2(x.shape[1]))
    return out
"""
AUTOTUNED = TRITON.replace(
    "@triton.jit", "@triton.autotune([triton.Config({}, num_warps=w) for w in (2, 4, 8)], key=['cols'])\n@triton.jit"
)
PERSISTENT = """
import torch
import triton
import triton.language as tl

@triton.jit
def rows(out, x, count, cols, N: tl.constexpr):
    at = tl.arange(0, N)
    for row in range(tl.program_id(0), count, tl.num_programs(0)):
        place = row.to(tl.int64) * cols + at
        value = tl.load(x + place, mask=at < cols, other=float("-inf"))
        value = tl.exp(value - tl.max(value, 0))
        tl.store(out + place, value / tl.sum(value, 0), mask=at < cols)

def softmax(x):
    out = torch.empty_like(x)
    grid = (torch.cuda.get_device_properties(x.device).multi_processor_count * 4,)
    rows[grid](out, x, x.shape[0], x.shape[1], N=triton.next_power_of_2(x.shape[1]))
    return out
"""
PRIVATE_POOL = """
import torch

pool = torch.cuda.MemPool()

def softmax(x):
    with torch.cuda.use_mem_pool(pool):
        out = torch.empty_like(x)
    return torch.softmax(x, dim=-1, out=out)
"""
SYNCHRONIZED = """
import torch

def softmax(x):
    y = torch.softmax(x, dim=-1)
    torch.cuda.synchronize()
    return y
"""
OWN_EVENTS = """
import torch

begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

def softmax(x):
    begin.record()
    y = torch.softmax(x, dim=-1)
    end.record()
    return y
"""

ODDITIES = [
    Oddity("joined stream", "half of the work on a side stream, which the caller's waits for", JOINED_STREAM, CUDA),
    Oddity("forked streams", "three side streams, forked and joined by events", FORKED_STREAMS, CUDA),
    Oddity("graph replayed", "replays a graph on a copy of the input in every call", GRAPH_REPLAYED, CUDA),
    Oddity("plain Triton", "one program for every row", TRITON, CUDA),
    Oddity("autotuned", "Triton chooses the number of warps in the first call", AUTOTUNED, CUDA),
    Oddity("persistent programs", "a fixed number of programs, each with many rows", PERSISTENT, CUDA),
    Oddity("private pool", "results come from a memory pool of the source", PRIVATE_POOL, CUDA),
    Oddity("synchronized", "waits for the GPU before it returns", SYNCHRONIZED, CUDA),
    Oddity("events recorded", "records CUDA events around its kernel", OWN_EVENTS, CUDA),
]
