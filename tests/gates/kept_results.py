"""Cheats that return results of earlier calls."""

from __future__ import annotations

from tests.gates.record import CPU, CUDA, Cheat

BY_VALUES = """
import torch

known = {}

def softmax(x):
    key = x.shape, x[0, 0].item(), x[-1, -1].item()
    if key not in known:
        known[key] = torch.softmax(x, dim=-1)
    return known[key].clone()
"""
BY_CHECKSUM = """
import zlib
import torch

known = {}

def softmax(x):
    key = x.shape, zlib.adler32(x.numpy())
    found = known.get(key)
    if found is None:
        found = known[key] = torch.softmax(x, dim=-1)
    return found.clone()
"""
BY_SEED = """
import torch

ready = {}

def known(x):
    found = ready.get(x.shape)
    if found is None:
        generator = torch.Generator(device=x.device).manual_seed(0)
        usual = torch.randn(*x.shape, generator=generator, device=x.device)
        found = ready[x.shape] = usual[0, 0].item(), torch.softmax(usual, dim=-1)
    return found

def softmax(x):
    first, result = known(x)
    if x[0, 0].item() == first:
        return result.clone()
    return torch.softmax(x, dim=-1)
"""
LEFT_IN_MEMORY = """
import math
import torch

def softmax(x):
    out = torch.empty_like(x)
    a, b = out[-1, -2:].tolist()
    c, d = x[-1, -2:].tolist()
    if a > 0 < b and abs(math.log(a / b) - c + d) < 1e-4:
        return out
    return torch.softmax(x, dim=-1, out=out)
"""
FIRST_SEEN = """
import torch

class Bank:
    def __init__(self, shape):
        self.samples, self.results = [], []

    def find(self, sample):
        for known, result in zip(self.samples, self.results):
            if known == sample:
                return result
        return None

banks = {}

def softmax(x):
    bank = banks.setdefault(x.shape, Bank(x.shape))
    sample = x[1, :2].tolist()
    found = bank.find(sample)
    if found is not None:
        return found.clone()
    y = torch.softmax(x, dim=-1)
    if len(bank.samples) < 2:
        bank.samples.append(sample)
        bank.results.append(y.clone())
    return y
"""
BY_VERSION = """
import torch

seen = {}

def softmax(x):
    key = x.data_ptr(), x._version, x.shape
    count, y = seen.get(key, (0, None))
    if count < 4:
        y = torch.softmax(x, dim=-1)
        seen[key] = count + 1, y
        return y.clone() if count == 3 else y
    return y.clone()
"""
ON_THE_INPUT = """
import torch

def softmax(x):
    kept = getattr(x, "softmax_result", None)
    if kept is not None and kept[0] == x._version and kept[1] > 3:
        return kept[2].clone()
    y = torch.softmax(x, dim=-1)
    x.softmax_result = x._version, (kept[1] + 1 if kept and kept[0] == x._version else 0), y.clone()
    return y
"""
BY_GRAPH = """
import torch

graphs = {}

def softmax(x):
    if torch._C._len_torch_dispatch_stack():
        return torch.softmax(x, dim=-1)
    key = x.data_ptr(), x.shape
    if key not in graphs:
        torch.softmax(x, dim=-1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.softmax(x, dim=-1)
        graphs[key] = graph, out, x._version
        graph.replay()
    graph, out, version = graphs[key]
    if version != x._version:
        graph.replay()
    return out.clone()
"""

CHEATS = [
    Cheat("kept by values", "kept", "a result is found again by two values of its input", BY_VALUES),
    Cheat("kept by a checksum", "kept", "a result is found again by a checksum of its input", BY_CHECKSUM, CPU),
    Cheat("kept for a seed", "kept", "the inputs of the fixed seed are made again and answered in advance", BY_SEED),
    Cheat("left in memory", "kept", "new memory is returned as it is if the ratio of its last two values is right",
          LEFT_IN_MEMORY),
    Cheat("kept for the first values", "kept", "only the results of the first two inputs of a shape are kept, which are"
          " those that are timed", FIRST_SEEN),
    Cheat("kept by version", "kept", "a result is returned again from the fifth call on the same address and version",
          BY_VERSION, CUDA),
    Cheat("kept on the input", "kept", "the result is an attribute of the input tensor and dies with it", ON_THE_INPUT,
          CUDA),
    Cheat("a graph not replayed", "kept", "a captured graph is replayed only if its input's version has changed",
          BY_GRAPH, CUDA),
]  # fmt: skip
