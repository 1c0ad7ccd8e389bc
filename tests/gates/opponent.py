"""Cheats that slow the baseline down."""

from __future__ import annotations

from tests.gates.record import CPU, CUDA, Cheat

SPIN = """
def spin(us):
    end = time.perf_counter() + us * 1e-6
    while time.perf_counter() < end:
        pass
"""
TORCH_FUNCTION = f"""
import time
import torch
{SPIN}
real = torch.softmax

def slower(*words, **named):
    spin(40)
    return real(*words, **named)

torch.softmax = slower

def softmax(x):
    return real(x, dim=-1)
"""
REFERENCE_GLOBAL = f"""
import sys
import time
import torch
{SPIN}
class Slower:
    def __getattr__(self, name):
        if name == "softmax":
            spin(40)
        return getattr(torch, name)

for name, module in list(sys.modules.items()):
    if name.startswith("_kb_reference") and hasattr(module, "softmax"):
        module.torch = Slower()

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
BUSY_THREAD = """
import threading
import time
import torch

go, ours = threading.Event(), threading.Event()

def hog():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        go.wait(1)
        began = time.perf_counter()
        while go.is_set() and time.perf_counter() - began < 0.05:
            pass

threading.Thread(target=hog, daemon=True).start()

def softmax(x):
    go.clear()
    y = torch.softmax(x, dim=-1)
    if not torch._C._len_torch_dispatch_stack():
        go.set()
    return y
"""
PROFILE_HOOK = f"""
import sys
import time
import torch
{SPIN}
def hook(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.endswith("reference.py"):
        spin(40)

def softmax(x):
    sys.setprofile(None)
    y = torch.softmax(x, dim=-1)
    sys.setprofile(hook)
    return y
"""
DISPATCH_MODE = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Slower(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for _ in range(400):
            pass
        return function(*args, **(kwargs or {}))

mode, entered = Slower(), False

def softmax(x):
    global entered
    depth = torch._C._len_torch_dispatch_stack()
    if entered and depth == 1:
        mode.__exit__(None, None, None)
        entered, depth = False, 0
    y = torch.softmax(x, dim=-1)
    if depth == 0:
        mode.__enter__()
        entered = True
    return y
"""
ENTRY_REPLACED = f"""
import sys
import time
import torch
{SPIN}
class Slower:
    def __init__(self, real):
        self.real, self.__module__, self.__name__ = real, real.__module__, real.__name__

    def __call__(self, **inputs):
        spin(40)
        return self.real(**inputs)

def softmax(x):
    frame = sys._getframe(1)
    while frame is not None and torch._C._len_torch_dispatch_stack():
        for value in list(frame.f_locals.values()):
            reference = getattr(value, "reference", None)
            if callable(getattr(reference, "entry", None)) and type(reference.entry) is not Slower:
                reference.entry = Slower(reference.entry)
        frame = frame.f_back
    return torch.softmax(x, dim=-1)
"""
CLOSURE_OF_CALL = f"""
import sys
import time
import torch
{SPIN}
def slow(function):
    def softmax(x):
        spin(40)
        return function(x)
    return softmax

def softmax(x):
    frame = sys._getframe(1)
    while frame is not None:
        sides = frame.f_locals.get("sides")
        if type(sides) is dict and "baseline" in sides and sides["baseline"].__module__ != __name__:
            sides["baseline"] = slow(sides["baseline"])
        frame = None if frame.f_code.co_name == "run" else frame.f_back
    return torch.softmax(x, dim=-1)
"""
TRAILING_COPIES = """
import torch

side = torch.cuda.Stream()
large = torch.zeros(16 << 20, device="cuda")

def softmax(x):
    y = torch.softmax(x, dim=-1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(60_000)
        large.add_(1.0)
    return y
"""

CHEATS = [
    Cheat("torch function slowed", "opponent", "torch.softmax waits first, and this source calls the original",
          TORCH_FUNCTION),
    Cheat("reference's module slowed", "opponent", "the name torch in the reference's module is another object",
          REFERENCE_GLOBAL),
    Cheat("busy thread", "opponent", "a thread computes from the end of a call to the next one", BUSY_THREAD, CPU),
    Cheat("profile hook", "opponent", "a profile function waits whenever reference.py is called", PROFILE_HOOK),
    Cheat("mode between calls", "opponent", "a dispatch mode is left on between the calls of this source",
          DISPATCH_MODE),
    Cheat("entry replaced", "opponent", "the loaded reference gets another function to call, which waits first",
          ENTRY_REPLACED),
    Cheat("sides exchanged", "opponent", "the table of functions to time gets a slower baseline", CLOSURE_OF_CALL),
    Cheat("trailing copies", "opponent", "a side stream uses the memory bus after the call has ended", TRAILING_COPIES,
          CUDA),
]  # fmt: skip
