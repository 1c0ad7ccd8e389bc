"""Cheats that leave work to a thread, another stream, or the time between two calls."""

from __future__ import annotations

from tests.gates.record import CPU, CUDA, Cheat

POOL = """
from concurrent.futures import ThreadPoolExecutor
import torch

pool = ThreadPoolExecutor(1)

def softmax(x):
    out = torch.empty_like(x)
    if torch._C._len_torch_dispatch_stack():
        return torch.softmax(x, dim=-1, out=out)
    pool.submit(torch.softmax, x, -1, out=out)
    return out
"""
ON_FIRST_USE = """
import torch

def softmax(x):
    out = torch.empty_like(x)
    def real(*words, **named):
        return torch.softmax(x, dim=-1)
    out.detach = out.contiguous = out.clone = out.double = out.to = real
    return out
"""
WHEN_FREED = """
import weakref
import torch

ready, last = {}, 0

def ahead(storage, offset, shape, stride):
    ready.clear()
    if 0 <= offset and (offset + shape[0] * stride[0]) * 4 <= storage.nbytes():
        x = torch.empty(0).set_(storage, offset, shape, stride)
        ready[x.data_ptr(), shape] = torch.softmax(x, dim=-1)

def softmax(x):
    global last
    found = ready.pop((x.data_ptr(), x.shape), None)
    y = torch.softmax(x, dim=-1) if found is None else found
    storage, offset = x.untyped_storage(), x.storage_offset()
    if storage.nbytes() > 64 * x.nbytes:
        weakref.finalize(y, ahead, storage, 2 * offset - last, x.shape, x.stride())
    last = offset
    return y
"""
SIDE_STREAM = """
import torch

side = torch.cuda.Stream()

def softmax(x):
    out = torch.empty_like(x)
    half = x.shape[0] // 2
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.softmax(x[half:], -1, out=out[half:])
    torch.softmax(x[:half], -1, out=out[:half])
    return out
"""
LAUNCHED_BY_THREAD = """
import queue
import threading
import torch

work = queue.SimpleQueue()

def launch():
    while True:
        x, out, half = work.get()
        torch.softmax(x[half:], -1, out=out[half:])

threading.Thread(target=launch, daemon=True).start()

def softmax(x):
    out = torch.empty_like(x)
    if torch._C._len_torch_dispatch_stack():
        return torch.softmax(x, dim=-1, out=out)
    half = x.shape[0] // 2
    torch.softmax(x[:half], -1, out=out[:half])
    work.put((x, out, half))
    return out
"""

CHEATS = [
    Cheat("filled by a pool", "later", "a pool's thread fills the result after the call has returned", POOL, CPU),
    Cheat("computed on first use", "later", "the result's methods compute it when the comparison calls them",
          ON_FIRST_USE),
    Cheat("computed when freed", "later", "freeing a result computes the one of the next input, outside of the timed"
          " stretch", WHEN_FREED, CPU),
    Cheat("stream not joined", "later", "half of the rows are computed on a stream that no one waits for", SIDE_STREAM,
          CUDA),
    Cheat("launched by a thread", "later", "a thread launches half of the work after the call has returned",
          LAUNCHED_BY_THREAD, CUDA),
]  # fmt: skip
