"""Cheats that change the clock or its records."""

from __future__ import annotations

from tests.gates.record import CPU, CUDA, UP, Cheat

CLOCK_REPLACED = """
import sys
import time
import torch

real, mine, last = time.perf_counter_ns, False, 0

def shorter():
    global mine, last
    t = real()
    if mine:
        mine, t = False, last + (t - last) // 2
    last = t
    return t

for name, module in list(sys.modules.items()):
    if name.startswith("harness") and getattr(module, "now", None) is real:
        module.now = shorter

def softmax(x):
    global mine
    y = torch.softmax(x, dim=-1)
    mine = True
    return y
"""
SAMPLES_EDITED = f"""
import sys
import torch
{UP}
done = {{}}

def halve(timing):
    values = timing.samples["solution"]
    for place in range(done.get(id(values), 0), len(values)):
        values[place] /= 2
    done[id(values)] = len(values)
    for block in timing.rounds[done.get(id(timing), 0):]:
        block["solution"][:] = [value / 2 for value in block["solution"]]
    done[id(timing)] = len(timing.rounds)

def softmax(x):
    for frame in above():
        timing = frame.f_locals.get("timing")
        if timing is not None and "solution" in getattr(timing, "samples", ()):
            halve(timing)
            break
        if frame.f_code.co_name == "run":
            break
    return torch.softmax(x, dim=-1)
"""
MEASURE_REWRITTEN = """
import sys
import torch

def measure(self, calls):
    times = []
    for call in calls:
        if call.prepare is not None:
            call.prepare()
        start = now()
        result = call.run()
        end = now()
        del result
        cells = [cell.cell_contents for cell in call.run.__closure__ or ()]
        times.append(Measured((end - start) / (2000 if "solution" in map(str, cells) else 1000)))
    return times

for name, module in list(sys.modules.items()):
    if name.startswith("harness") and hasattr(module, "WallClock"):
        module.WallClock.measure.__code__ = measure.__code__

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
CLASS_OF_TIMES = """
import sys
import torch

mine = False

def softmax(x):
    global mine
    y = torch.softmax(x, dim=-1)
    mine = True
    return y

for name, module in list(sys.modules.items()):
    if name.startswith("harness") and hasattr(module, "Measured"):
        class Shorter(module.Measured):
            def __new__(cls, us, *more):
                global mine
                shorter, mine = us / 2 if mine else us, False
                return tuple.__new__(cls, (shorter, *(more or (None,))))
        module.Measured = Shorter
        break
"""
RECORDS_OFF = """
import ctypes
import torch

def library():
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libcupti" in line}
    return ctypes.CDLL(min(paths)) if paths else None

cupti = library()
KERNELS = 3, 10

def softmax(x):
    half = x.shape[0] // 2
    out = torch.empty_like(x)
    if cupti is not None:
        for kind in KERNELS:
            cupti.cuptiActivityDisable(kind)
    torch.softmax(x[:half], -1, out=out[:half])
    if cupti is not None:
        cupti.cuptiActivityEnable(10)
    torch.softmax(x[half:], -1, out=out[half:])
    return out
"""
OWN_PAUSE = """
import gc
import torch

pauses = [item for item in gc.get_objects() if hasattr(type(item), "pause") and hasattr(item, "lap_us")]

def softmax(x):
    out = torch.empty_like(x)
    torch.softmax(x[:8], -1, out=out[:8])
    for item in pauses[:1]:
        item.pause()
    torch.softmax(x[8:], -1, out=out[8:])
    return out
"""
EVENTS_SCALED = """
import ctypes
import torch

real = torch.cuda.Event.elapsed_time
ours = False

def elapsed(self, end):
    return real(self, end) / 2 if getattr(end, "after_ours", False) else real(self, end)

record = torch.cuda.Event.record

def marked(self, stream=None):
    global ours
    self.after_ours, ours = ours, False
    return record(self) if stream is None else record(self, stream)

torch.cuda.Event.elapsed_time, torch.cuda.Event.record = elapsed, marked
with open("/proc/self/maps") as maps:
    paths = {line.split()[-1] for line in maps if "libcupti" in line}
cupti = ctypes.CDLL(min(paths)) if paths else None

def softmax(x):
    global ours
    if cupti is not None:
        cupti.cuptiActivityFlushAll(1)
        cupti.cuptiActivityDisable(10)
    y = torch.softmax(x, dim=-1)
    ours = True
    return y
"""

CHEATS = [
    Cheat("clock replaced", "meter", "the clock that the harness has saved is exchanged for one that halves the time of"
          " this source", CLOCK_REPLACED, CPU),
    Cheat("samples edited", "meter", "times already measured are halved in a caller's variable", SAMPLES_EDITED),
    Cheat("measuring rewritten", "meter", "the code of the method that measures is exchanged", MEASURE_REWRITTEN, CPU),
    Cheat("class of times replaced", "meter", "the class that holds a measured time halves those of this source",
          CLASS_OF_TIMES, CPU),
    Cheat("records off", "meter", "CUPTI records no kernels during half of the call", RECORDS_OFF, CUDA),
    Cheat("own pause", "meter", "the harness's pause kernel is launched in the middle of the call, so that the rest"
          " belongs to no call", OWN_PAUSE, CUDA),
    Cheat("events scaled", "meter", "records are switched off, and CUDA events show half of the time", EVENTS_SCALED,
          CUDA),
]  # fmt: skip
