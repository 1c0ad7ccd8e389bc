"""Honest oddities: sources that look like cheats, or like nothing that a harness expects, and do all of their work."""

from __future__ import annotations

from tests.gates import odd_gpu_sources
from tests.gates.record import CPU, Oddity

PLANS_BY_SHAPE = """
import torch

plans = {}

def softmax(x):
    if x.shape not in plans:
        plans[x.shape] = max(1, x.shape[0] // 4), torch.ones(x.shape[-1], 1, device=x.device)
    step, ones = plans[x.shape]
    out = torch.empty_like(x)
    for start in range(0, x.shape[0], step):
        e = (x[start:start + step] - x[start:start + step].amax(-1, keepdim=True)).exp_()
        torch.div(e, e @ ones, out=out[start:start + step])
    return out
"""
POOL_OF_RESULTS = """
import sys
import torch

pool = {}

def softmax(x):
    known = pool.setdefault((x.shape, x.device), [])
    for out in known:
        if sys.getrefcount(out) == 3:
            return torch.softmax(x, dim=-1, out=out)
    out = torch.empty_like(x)
    known.append(out)
    return torch.softmax(x, dim=-1, out=out)
"""
OWN_SCRATCH = """
import torch

scratch = {}

def softmax(x):
    if x.shape not in scratch:
        scratch[x.shape] = torch.empty_like(x)
    e = torch.sub(x, x.amax(-1, keepdim=True), out=scratch[x.shape]).exp_()
    return e / e.sum(-1, keepdim=True)
"""
JOINED_THREADS = """
import threading
import torch

def softmax(x):
    out = torch.empty_like(x)
    half = x.shape[0] // 2
    def rest():
        torch.softmax(x[half:], -1, out=out[half:])
    thread = threading.Thread(target=rest)
    thread.start()
    torch.softmax(x[:half], -1, out=out[:half])
    thread.join()
    return out
"""
POOL_AWAITED = """
from concurrent.futures import ThreadPoolExecutor
import torch

pool = ThreadPoolExecutor(1)

def softmax(x):
    return pool.submit(torch.softmax, x, -1).result()
"""
TUNED_FIRST = """
import time
import torch

def fused(x):
    return torch.softmax(x, dim=-1)

def by_hand(x):
    e = (x - x.amax(-1, keepdim=True)).exp_()
    return e.div_(e.sum(-1, keepdim=True))

chosen = {}

def tune(x):
    took = {}
    for function in (fused, by_hand):
        function(x)
        began = time.perf_counter()
        for _ in range(5):
            function(x)
        took[function] = time.perf_counter() - began
    return min(took, key=took.get)

def softmax(x):
    if x.shape not in chosen:
        chosen[x.shape] = tune(x)
    return chosen[x.shape](x)
"""
CACHED_SETTINGS = """
import functools
import torch

@functools.lru_cache(maxsize=None)
def settings(rows, cols):
    return {"dim": -1 if cols else 0}

def softmax(x):
    return torch.softmax(x, **settings(*x.shape))
"""
WARMED_AT_IMPORT = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
for size in (16, 64, 256):
    torch.softmax(torch.zeros(size, size, device=device), dim=-1)

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
TRANSPOSED = """
import torch

def softmax(x):
    turned = torch.softmax(x.t().contiguous(), dim=0)
    return turned.t()
"""
PADDED_VIEW = """
import torch

def softmax(x):
    wide = torch.full((x.shape[0], x.shape[1] + 8), float("-inf"), device=x.device)
    wide[:, :x.shape[1]] = x
    return torch.softmax(wide, dim=-1)[:, :x.shape[1]]
"""
CUSTOM_OPERATOR = """
import torch

@torch.library.custom_op("gates_odd::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)

@rows.register_fake
def _(x):
    return torch.empty_like(x)

def softmax(x):
    return rows(x)
"""
EXCEPTION_HANDLED = """
import torch

def softmax(x):
    try:
        return torch.softmax(x, dim=7)
    except IndexError:
        return torch.softmax(x, dim=-1)
"""
LOGGED = """
import logging
import torch

log = logging.getLogger("softmax")
log.addHandler(logging.NullHandler())
calls = 0

def softmax(x):
    global calls
    calls += 1
    log.warning("call %d on %s", calls, tuple(x.shape))
    return torch.softmax(x, dim=-1)
"""
ROW_BY_ROW = """
import torch

def softmax(x):
    return torch.stack([torch.softmax(row, dim=-1) for row in x.unbind(0)])
"""
RANDOM_ORDER = """
import random
import torch

def softmax(x):
    starts = list(range(0, x.shape[0], 8))
    random.shuffle(starts)
    out = torch.empty_like(x)
    for start in starts:
        torch.softmax(x[start:start + 8], -1, out=out[start:start + 8])
    return out
"""
IN_INFERENCE_MODE = """
import torch

@torch.inference_mode()
def compute(x):
    return torch.softmax(x, dim=-1)

def softmax(x):
    return compute(x).clone()
"""
WITH_A_NOTE = """
import torch

def softmax(x):
    y = torch.softmax(x, dim=-1)
    y.rows_per_block = 4
    return y
"""
OWN_MODE = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[function] = self.counts.get(function, 0) + 1
        return function(*args, **(kwargs or {}))

def softmax(x):
    with Counting():
        return torch.softmax(x, dim=-1)
"""
CALLABLE_OBJECT = """
import functools
import torch

class Kernel(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.softmax(x, self.dim)

softmax = functools.partial(Kernel.forward, Kernel(-1))
"""
GENERATED_CODE = """
import torch

lines = ["def softmax(x):", "    e = (x - x.amax(-1, keepdim=True)).exp_()", "    return e / e.sum(-1, keepdim=True)"]
scope = {"torch": torch}
exec(compile("\\n".join(lines), "generated", "exec"), scope)
softmax = scope["softmax"]
"""
WITH_GRADIENT = """
import torch

class Rows(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        y = torch.softmax(x, dim=-1)
        context.save_for_backward(y)
        return y

    @staticmethod
    def backward(context, grad):
        (y,) = context.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True))

def softmax(x):
    return Rows.apply(x)
"""
CLOCK_READ = """
import time
import torch

longest = 0.0

def softmax(x):
    global longest
    began = time.perf_counter()
    y = torch.softmax(x, dim=-1)
    longest = max(longest, time.perf_counter() - began)
    return y
"""
CALLER_NAMED = """
import sys
import warnings
import torch

def softmax(x):
    if x.ndim != 2:
        warnings.warn(f"{sys._getframe(1).f_code.co_name} passed {x.ndim} axes")
    return torch.softmax(x, dim=-1)
"""
COLLECTED = """
import gc
import torch

calls = 0

def softmax(x):
    global calls
    calls += 1
    was_on = gc.isenabled()
    gc.disable()
    try:
        return torch.softmax(x, dim=-1)
    finally:
        if was_on:
            gc.enable()
"""
BY_NUMPY = """
import numpy
import torch

def softmax(x):
    values = x.numpy()
    e = numpy.exp(values - values.max(axis=-1, keepdims=True))
    return torch.from_numpy(e / e.sum(axis=-1, keepdims=True))
"""
ON_MAPPED_MEMORY = """
import mmap
import torch

def softmax(x):
    memory = mmap.mmap(-1, x.nbytes)
    out = torch.frombuffer(memory, dtype=x.dtype).view(x.shape)
    return torch.softmax(x, dim=-1, out=out)
"""
ALIASES_OF_ITSELF = """
import torch

def softmax(x):
    both = torch.empty((2, *x.shape), device=x.device)
    torch.sub(x, x.amax(-1, keepdim=True), out=both[0])
    torch.exp(both[0], out=both[1])
    return both[1].div_(both[1].sum(-1, keepdim=True))
"""

ODDITIES = [
    Oddity("plans by shape", "keeps constants and a step size for each shape", PLANS_BY_SHAPE),
    Oddity("pool of results", "reuses the memory of results that the caller has freed", POOL_OF_RESULTS),
    Oddity("own scratch", "computes in place in memory that it keeps, and returns new memory", OWN_SCRATCH),
    Oddity("joined thread", "a thread does half of the work and is joined", JOINED_THREADS),
    Oddity("pool awaited", "a pool's thread does the work, and the call waits for it", POOL_AWAITED),
    Oddity("tuned first", "the first call of a shape times two variants", TUNED_FIRST),
    Oddity("cached settings", "lru_cache over the sizes", CACHED_SETTINGS),
    Oddity("warmed at import", "computes on small tensors while it loads", WARMED_AT_IMPORT),
    Oddity("transposed result", "returns a view that is not contiguous", TRANSPOSED),
    Oddity("view of wider memory", "returns part of a wider result", PADDED_VIEW),
    Oddity("custom operator", "calls an operator of torch.library", CUSTOM_OPERATOR),
    Oddity("exception handled", "every call raises and handles an exception", EXCEPTION_HANDLED),
    Oddity("logged calls", "counts its calls and logs them", LOGGED),
    Oddity("row by row", "one call of torch for every row", ROW_BY_ROW),
    Oddity("random order", "works on blocks of rows in random order", RANDOM_ORDER),
    Oddity("inference mode", "computes in inference mode and returns a copy", IN_INFERENCE_MODE),
    Oddity("note on the result", "the result carries an attribute for a later kernel", WITH_A_NOTE),
    Oddity("own mode", "a dispatch mode counts operators during the call", OWN_MODE),
    Oddity("partial of a method", "the entry is a functools.partial", CALLABLE_OBJECT),
    Oddity("generated code", "the entry comes from exec", GENERATED_CODE),
    Oddity("with a gradient", "an autograd.Function saves its result for backward", WITH_GRADIENT),
    Oddity("clock read", "times its own calls", CLOCK_READ),
    Oddity("caller named in a warning", "looks at its caller's frame for a message", CALLER_NAMED),
    Oddity("collection paused", "switches garbage collection off during the call", COLLECTED),
    Oddity("by numpy", "computes in numpy on the input's memory", BY_NUMPY, CPU),
    Oddity("mapped memory", "returns memory that it maps in every call", ON_MAPPED_MEMORY, CPU),
    Oddity("two halves of one memory", "returns half of a block whose other half is scratch", ALIASES_OF_ITSELF),
    *odd_gpu_sources.ODDITIES,
]
