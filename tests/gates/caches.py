"""Cheats that prepare caches for the timed call."""

from __future__ import annotations

from tests.gates.record import CPU, CUDA, Cheat

PREFETCH_ON_FREE = """
import torch

last = 0

class Touch:
    __slots__ = "storage", "offset", "size"

    def __del__(self):
        if 0 <= self.offset and (self.offset + self.size) * 4 <= self.storage.nbytes():
            torch.empty(0).set_(self.storage, self.offset, (self.size,), (1,)).sum()

def softmax(x):
    global last
    y = torch.softmax(x, dim=-1)
    offset = x.storage_offset()
    if offset > x.numel():
        y.then = then = Touch()
        then.storage, then.offset, then.size = x.untyped_storage(), 2 * offset - last, x.numel()
    last = offset
    return y
"""
PERSISTING_WINDOW = """
import ctypes
import torch

class Window(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("ratio", ctypes.c_float),
                ("hit", ctypes.c_int), ("miss", ctypes.c_int)]

class Value(ctypes.Union):
    _fields_ = [("window", Window), ("pad", ctypes.c_char * 64)]

driver = ctypes.CDLL("libcuda.so.1")
driver.cuCtxSetLimit(6, ctypes.c_size_t(30 << 20))

def softmax(x):
    value = Value()
    value.window = Window(x.data_ptr(), x.nbytes, 1.0, 2, 1)
    driver.cuStreamSetAttribute(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), 1, ctypes.byref(value))
    return torch.softmax(x, dim=-1)
"""
EVICT_LAST = """
import torch
import triton
import triton.language as tl

@triton.jit
def rows(out, x, cols, N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, N)
    value = tl.load(x + row + at, mask=at < cols, other=float("-inf"), eviction_policy="evict_last")
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + at, value / tl.sum(value, 0), mask=at < cols, eviction_policy="evict_first")

def softmax(x):
    out = torch.empty_like(x)
    rows[(x.shape[0],)](out, x, x.shape[1], N=triton.next_power_of_2(x.shape[1]))
    return out
"""
SHORT_FLUSH = """
import gc
import torch

done = False

def shorten():
    for item in gc.get_objects():
        if hasattr(item, "lap_us") and hasattr(item, "_graphs"):
            item._count = 8192
            item._graphs.clear()
            item.ready(1.0)

def softmax(x):
    global done
    if not done and not torch.cuda.is_current_stream_capturing():
        done = True
        shorten()
    return torch.softmax(x, dim=-1)
"""

CHEATS = [
    Cheat("next input touched", "cache", "when a result is freed, the memory of the next input is read",
          PREFETCH_ON_FREE, CPU),
    Cheat("persisting window", "cache", "the stream keeps the input's lines in the L2 over the flush",
          PERSISTING_WINDOW, CUDA),
    Cheat("evict last", "cache", "the input is loaded so that the flush does not evict it", EVICT_LAST, CUDA),
    Cheat("short flush", "cache", "the flush's graphs are replaced by some that read 32 KiB", SHORT_FLUSH, CUDA),
]  # fmt: skip
