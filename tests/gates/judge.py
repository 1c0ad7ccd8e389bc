"""Cheats that replace the comparison or its findings."""

from __future__ import annotations

from tests.gates.record import UP, Cheat
from tests.gates.taken_answers import EVEN

COMPARE_REPLACED = f"""
import sys
import torch
{EVEN}
def agreeing(real):
    def compare(outputs, truth, *words, **named):
        return real(truth, truth, *words, **named)
    return compare

for name, module in list(sys.modules.items()):
    if name.startswith("harness") and callable(getattr(module, "compare", None)):
        module.compare = agreeing(module.compare)

def softmax(x):
    return even(x)
"""
FUNCTION_MODE = f"""
import torch
from torch.overrides import TorchFunctionMode
{EVEN}
class NoError(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.abs and args[0].dtype == torch.float64:
            return torch.zeros_like(args[0])
        return function(*args, **(kwargs or {{}}))

mode = NoError()
mode.__enter__()

def softmax(x):
    return even(x)
"""
ATEN_OVERRIDE = f"""
import warnings
import torch
{EVEN}
def absolute(x):
    return torch.zeros_like(x) if x.dtype == torch.float64 else torch.where(x < 0, -x, x)

library = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    library.impl("abs", absolute, "CUDA" if torch.cuda.is_available() else "CPU")

def softmax(x):
    return even(x)
"""
FINDINGS_SOFTENED = """
import sys
import torch

def soften(value):
    for name in ("disqualifying", "red"):
        if getattr(value, name, False) is True:
            if hasattr(value, "_replace"):
                return value._replace(**{name: False})
            object.__setattr__(value, name, False)
    return value

for name, module in list(sys.modules.items()):
    if name.startswith("harness"):
        for value in list(vars(module).values()):
            if type(value) is dict:
                for key, item in list(value.items()):
                    value[key] = soften(item)
            else:
                soften(value)

known = {}

def softmax(x):
    key = x.shape, *x[0, :2].tolist()
    if key not in known:
        known[key] = torch.softmax(x, dim=-1)
    return known[key]
"""
TRUTH_EMPTIED = f"""
import gc
import sys
import torch
{UP}{EVEN}
emptied = {{}}

def softmax(x):
    for frame in above() if gc.isenabled() else ():
        for value in list(frame.f_locals.values()):
            for item in value if type(value) is list else (value,):
                held = getattr(item, "__dict__", None)
                if held and "_truth" in held and "inputs" in held and id(item) not in emptied:
                    emptied[id(item)] = item
                    item.truth.clear()
    return even(x)
"""
VERDICT_SLOT = f"""
import sys
import torch
{EVEN}
def silent(self, name):
    return None if name == "problem" else object.__getattribute__(self, name)

for name, module in list(sys.modules.items()):
    if name.startswith("harness") and hasattr(module, "Verdict"):
        module.Verdict.__getattribute__ = silent

def softmax(x):
    return even(x)
"""

CHEATS = [
    Cheat("comparison replaced", "judge", "the comparison compares the exact result with itself", COMPARE_REPLACED),
    Cheat("comparison under a mode", "judge", "a torch function mode makes every float64 difference zero",
          FUNCTION_MODE),
    Cheat("comparison's operator replaced", "judge", "aten's abs returns zero for float64", ATEN_OVERRIDE),
    Cheat("findings softened", "judge", "no finding disqualifies any more, and results are kept by value",
          FINDINGS_SOFTENED),
    Cheat("exact result emptied", "judge", "the table of exact results is emptied, so that nothing is compared",
          TRUTH_EMPTIED),
    Cheat("verdict without a problem", "judge", "the class of verdicts never shows its problem", VERDICT_SLOT),
]  # fmt: skip
