"""Cheats that find the answer, or what decides about it, in the harness."""

from __future__ import annotations

from tests.gates.record import UP, Cheat

EVEN = """
def even(x):
    return torch.full_like(x, 1 / x.shape[-1])
"""
ON_THE_STACK = f"""
import sys
import torch
{UP}
known = {{}}

def search(x):
    for frame in above(3):
        for value in frame.f_locals.values():
            for item in value if type(value) is list else (value,):
                held = getattr(item, "__dict__", None)
                if not held or held.get("_expected") is None or "inputs" not in held:
                    continue
                mine = held["inputs"].get("x")
                if mine is not None and mine.shape == x.shape:
                    known[x.shape, mine[0, 0].item()] = next(iter(held["_expected"].values()))

def softmax(x):
    key = x.shape, x[0, 0].item()
    if key not in known:
        search(x)
    if key in known:
        return known[key].clone()
    return torch.softmax(x, dim=-1)
"""
AMONG_OBJECTS = """
import gc
import math
import torch

known, scans = {}, 0

def search(x):
    for item in gc.get_objects():
        if type(item) is torch.Tensor and item.dtype == torch.float64 and item.shape == x.shape:
            a, b = item[0, :2].tolist()
            if a > 0 < b:
                known[x.shape, round(math.log(a / b), 3)] = item.to(x.dtype)

def softmax(x):
    global scans
    a, b = x[0, :2].tolist()
    key = x.shape, round(a - b, 3)
    if key not in known and not gc.isenabled() and scans < 12:
        scans += 1
        search(x)
    if key in known and not torch._C._len_torch_dispatch_stack():
        return known[key].clone()
    return torch.softmax(x, dim=-1)
"""
REFERENCE_SWAPPED = f"""
import gc
import sys
import torch
{EVEN}
def same(x):
    return torch.full_like(x, 1 / x.shape[-1])

done = False

def softmax(x):
    global done
    if not done:
        done = True
        for name, module in list(sys.modules.items()):
            if name.startswith("_kb_reference") and hasattr(module, "softmax"):
                module.softmax.__code__ = same.__code__
        for item in gc.get_objects():
            held = getattr(item, "__dict__", None)
            if type(held) is dict and "_truth" in held and "_expected" in held:
                held["_truth"] = held["_expected"] = None
    return even(x)
"""
TOLERANCE_WIDENED = f"""
import sys
import torch
{UP}{EVEN}
done = False

def widen():
    for frame in above(3):
        for value in list(frame.f_locals.values()):
            allowed = getattr(value, "tolerance", None)
            if type(allowed) is dict:
                for name, bound in allowed.items():
                    allowed[name] = type(bound)(1e9, 1e9)

def softmax(x):
    global done
    if not done:
        done = True
        widen()
    return even(x)
"""
SEEDS_READ = f"""
import sys
import torch
{UP}
ready, shapes = {{}}, set()

def prepare(x, seed):
    draws = [(0, 1.0, 0.0), (seed, 1.0, 0.0), (seed + 1, 4.0, 0.0), (seed + 2, 0.25, -3.0), (seed + 3, 1.0, 3.0)]
    for number, spread, offset in draws:
        generator = torch.Generator(device=x.device).manual_seed(number)
        made = torch.randn(*x.shape, generator=generator, device=x.device) * spread + offset
        ready[x.shape, made[0, 0].item()] = torch.softmax(made, dim=-1)

def softmax(x):
    if x.shape not in shapes:
        shapes.add(x.shape)
        for frame in above():
            request = getattr(frame.f_locals.get("self"), "request", None)
            if hasattr(request, "seed"):
                prepare(x, request.seed)
                break
    found = ready.get((x.shape, x[0, 0].item()))
    return torch.softmax(x, dim=-1) if found is None else found.clone()
"""

CHEATS = [
    Cheat("expected result on the stack", "answer", "the reference's outputs are taken from a caller's variables",
          ON_THE_STACK),
    Cheat("exact result among all objects", "answer", "gc finds a float64 tensor with the right ratio of two values",
          AMONG_OBJECTS),
    Cheat("reference swapped", "answer", "the reference gets code that returns a constant, and stored results are"
          " dropped", REFERENCE_SWAPPED),
    Cheat("tolerance widened", "answer", "the task's table of tolerances is changed in memory", TOLERANCE_WIDENED),
    Cheat("seeds read", "answer", "the run's seed is read from a caller, and every draw is answered in advance",
          SEEDS_READ),
]  # fmt: skip
