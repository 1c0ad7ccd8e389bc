"""Cheats that recognize a timed call and do part of its work."""

from __future__ import annotations

from tests.gates.record import CPU, CUDA, PART, UP, Cheat

BY_STACK = f"""
import sys
import torch
{PART}{UP}
def softmax(x):
    if any(frame.f_code.co_name == "measure" for frame in above()):
        return part(x)
    return torch.softmax(x, dim=-1)
"""
BY_DISPATCH_MODE = f"""
import torch
{PART}
versions = {{}}

def softmax(x):
    if torch._C._len_torch_dispatch_stack():
        return torch.softmax(x, dim=-1)
    place = x.data_ptr(), x.shape
    if versions.setdefault(place, x._version) != x._version:
        return torch.softmax(x, dim=-1)
    return part(x)
"""
BY_GARBAGE_COLLECTION = f"""
import gc
import torch
{PART}
firsts = {{}}

def softmax(x):
    if not gc.isenabled():
        first = x[0, 0].item()
        if firsts.setdefault((x.data_ptr(), x.shape), first) == first:
            return part(x)
    return torch.softmax(x, dim=-1)
"""
BY_GAP = f"""
import time
import torch
{PART}
left = 0.0

def softmax(x):
    global left
    in_a_loop = time.perf_counter() - left < 15e-6
    y = part(x) if in_a_loop else torch.softmax(x, dim=-1)
    left = time.perf_counter()
    return y
"""
BY_STORAGE = f"""
import torch
{PART}
known = {{}}

def softmax(x):
    shared = x.untyped_storage().nbytes() > 64 * x.nbytes
    if shared and known.setdefault(id(x), x._version) == x._version:
        return part(x)
    return torch.softmax(x, dim=-1)
"""
BY_SENTINEL = """
import torch

versions = {}

def softmax(x):
    out = torch.empty_like(x)
    half = x.shape[0] // 2
    last = out[-1, -1].item()
    refilled = versions.setdefault((x.data_ptr(), x.shape), x._version) != x._version
    if last != last or refilled:
        return torch.softmax(x, dim=-1, out=out)
    torch.softmax(x[:half], -1, out=out[:half])
    return out
"""
BY_BUSY_STREAM = f"""
import time
import torch
{PART}
def softmax(x):
    stream = torch.cuda.current_stream()
    if not stream.query():
        end = time.perf_counter() + 8e-6
        while time.perf_counter() < end:
            pass
        if not stream.query():
            return part(x)
    return torch.softmax(x, dim=-1)
"""

CHEATS = [
    Cheat("apart by the stack", "apart", "half of the rows if a caller is named measure", BY_STACK),
    Cheat("apart by the dispatch mode", "apart", "half of the rows if no dispatch mode is on and the input's version"
          " is the one first seen", BY_DISPATCH_MODE),
    Cheat("apart by garbage collection", "apart", "half of the rows while collection is off, unless the first value at"
          " an address has changed", BY_GARBAGE_COLLECTION),
    Cheat("apart by the gap", "apart", "half of the rows if the last call returned less than 15 us ago", BY_GAP, CPU),
    Cheat("apart by the storage", "apart", "half of the rows if the input is a small part of its storage", BY_STORAGE,
          CPU),
    Cheat("apart by the sentinel", "apart", "half of the rows if new memory does not hold NaN", BY_SENTINEL),
    Cheat("apart by a busy stream", "apart", "half of the rows if the GPU still works on something launched before",
          BY_BUSY_STREAM, CUDA),
]  # fmt: skip
