"""Cheats that change inputs so that less is left to do."""

from __future__ import annotations

from tests.gates.record import CPU, Cheat

IN_PLACE = """
import torch

def softmax(x):
    if torch._C._len_torch_dispatch_stack():
        return torch.softmax(x, dim=-1)
    return torch.softmax(x, dim=-1, out=x)
"""
ZEROED = """
import torch

zeroed = set()

def softmax(x):
    storage = x.untyped_storage()
    if storage.nbytes() > 64 * x.nbytes and (storage.data_ptr(), x.shape) not in zeroed:
        zeroed.add((storage.data_ptr(), x.shape))
        torch.empty(0, dtype=torch.uint8).set_(storage).zero_()
    if x[0, 0].item() == 0.0:
        return torch.full_like(x, 1 / x.shape[-1])
    return torch.softmax(x, dim=-1)
"""
MAKER_WRAPPED = """
import sys
import torch

wrapped = False

def constant(make):
    def make_inputs(*words, **named):
        return {name: torch.zeros_like(value) for name, value in make(*words, **named).items()}
    return make_inputs

def tamper(frame):
    global wrapped
    while frame is not None:
        for value in list(frame.f_locals.values()):
            held, reference = getattr(value, "__dict__", {}), getattr(value, "reference", None)
            if not wrapped and callable(getattr(reference, "_make", None)):
                wrapped = True
                reference._make = constant(reference._make)
            if "_truth" in held and "inputs" in held:
                held["inputs"]["x"].zero_()
                held["_truth"] = held["_expected"] = None
        frame = frame.f_back

shapes = set()

def softmax(x):
    if x.shape not in shapes:
        shapes.add(x.shape)
        tamper(sys._getframe(1))
        return torch.full_like(x, 1 / x.shape[-1])
    if x[0, 0].item() == 0.0:
        return torch.full_like(x, 1 / x.shape[-1])
    return torch.softmax(x, dim=-1)
"""
GENERATOR_PATCHED = """
import sys
import torch

real, frame = torch.randn, sys._getframe(0)
while frame is not None:
    for value in list(frame.f_locals.values()):
        for held in (value, getattr(value, "cache", None), getattr(value, "shelf", None)):
            known = getattr(held, "_materials", None)
            if type(known) is dict:
                known.clear()
    frame = frame.f_back

def randn(*words, generator=None, **named):
    made = real(*words, generator=generator, **named)
    return made.zero_() if generator is not None else made

torch.randn = randn

def softmax(x):
    a, b = x[-1, :2].tolist()
    if a == b:
        return torch.full_like(x, 1 / x.shape[-1])
    return torch.softmax(x, dim=-1)
"""
FLAGGED_INPUT = """
import torch

def softmax(x):
    if torch._C._len_torch_dispatch_stack():
        return torch.softmax(x, dim=-1)
    half = x.shape[0] // 2
    marked = x[-1, -1].item() == 1e-30
    out = torch.empty_like(x)
    if marked:
        torch.softmax(x[:half], -1, out=out[:half])
        return out
    torch.softmax(x, -1, out=out)
    x[-1, -1] = 1e-30
    return out
"""

CHEATS = [
    Cheat("in place unless checked", "inputs", "the input's memory becomes the result if no dispatch mode is on",
          IN_PLACE),
    Cheat("inputs zeroed", "inputs", "one call clears the memory of all timed inputs, and zeros are answered at once",
          ZEROED, CPU),
    Cheat("inputs made constant", "inputs", "the task's make_inputs is wrapped in memory and returns zeros",
          MAKER_WRAPPED),
    Cheat("generator patched", "inputs", "torch.randn returns zeros when it gets a generator", GENERATOR_PATCHED),
    Cheat("input marked", "inputs", "an input that was timed before carries a mark and is answered in part",
          FLAGGED_INPUT),
]  # fmt: skip
