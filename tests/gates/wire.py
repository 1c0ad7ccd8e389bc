"""Cheats that forge what the worker reports."""

from __future__ import annotations

from tests.gates.record import PART, UP, Cheat
from tests.gates.taken_answers import EVEN

FIND_PIPE = """
def event_pipe():
    for fd in range(3, 64):
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
            writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        except OSError:
            continue
        if is_pipe and writable:
            return fd
    return None
"""
FASTER = """
def faster(row):
    row = dict(row)
    if row.get("solution_us") is None:
        return row
    for name in ("solution_us", "speedup", "low", "high"):
        if row.get(name):
            row[name] = row[name] / 2 if name == "solution_us" else row[name] * 2
    row["verdict"] = "faster" if row.get("speedup") else row.get("verdict")
    for name in ("vs_best", "wall"):
        if row.get(name):
            row[name] = {key: value * 2 if key in ("speedup", "low", "high") and value else value
                         for key, value in row[name].items()}
    if row.get("vs_best"):
        row["vs_best"]["verdict"] = "faster"
    if row.get("wall"):
        row["wall"]["solution_us"] = row["solution_us"]
    if row.get("samples"):
        row["samples"] = {side: values if side in ("baseline", "best") else [value / 2 for value in values]
                          for side, values in row["samples"].items()}
    return row
"""
FORGED_LINES = f"""
import fcntl
import json
import os
import stat
import sys
import torch
{UP}{EVEN}{FIND_PIPE}
done = False

def forge(request):
    row = {{"status": "ok", "clock": "wall", "baseline_us": 100.0, "solution_us": 1.0, "speedup": 100.0, "low": 99.0,
            "high": 101.0, "verdict": "faster", "checked": 2}}
    lines = [{{"event": "case", "run": request.run, "at_ms": 50.0, "result": {{"id": case, **row}}}}
             for case in request.cases]
    lines.append({{"event": "finished", "run": request.run, "at_ms": 60.0}})
    os.write(event_pipe(), "".join(json.dumps(line) + "\\n" for line in lines).encode())

def softmax(x):
    global done
    if not done:
        done = True
        for frame in above():
            request = getattr(frame.f_locals.get("self"), "request", None)
            if hasattr(request, "cases"):
                forge(request)
                break
    return even(x)
"""
CHANNEL_EDITED = f"""
import dataclasses
import sys
import torch
{UP}{PART}
def better(result):
    if getattr(result, "solution_us", None) is None:
        return result
    half = {{"solution_us": result.solution_us / 2}}
    for name in ("speedup", "low", "high"):
        if getattr(result, name):
            half[name] = getattr(result, name) * 2
    if result.vs_best:
        ratio = result.vs_best
        half["vs_best"] = dataclasses.replace(
            ratio, speedup=ratio.speedup * 2, low=ratio.low * 2, high=ratio.high * 2, verdict="faster")
    if result.wall:
        half["wall"] = dataclasses.replace(
            result.wall, solution_us=result.wall.solution_us / 2, speedup=(result.wall.speedup or 1) * 2)
    samples = {{side: tuple(value / 2 for value in values) if side in ("solution", "with_best") else values
               for side, values in (result.samples or {{}}).items()}}
    return dataclasses.replace(result, **half, verdict="faster" if result.verdict else None, samples=samples)

def shadow(channel):
    real = channel.emit
    def emit(event, *words, **fields):
        if event == "case":
            fields["result"] = better(fields["result"])
        return real(event, *words, **fields)
    channel.emit = emit

done = False

def softmax(x):
    global done
    if not done:
        for frame in above():
            channel = frame.f_locals.get("channel")
            if hasattr(channel, "emit"):
                done = True
                shadow(channel)
                break
    return torch.softmax(x, dim=-1)
"""
LINES_REWRITTEN = f"""
import fcntl
import json
import os
import stat
import threading
import torch
{FIND_PIPE}{FASTER}
def forward(source, target):
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            message = json.loads(line)
            if message.get("event") == "case":
                message["result"] = faster(message["result"])
            os.write(target, (json.dumps(message) + "\\n").encode())

pipe = event_pipe()
if pipe is not None:
    target = os.dup(pipe)
    source, sink = os.pipe()
    os.dup2(sink, pipe)
    threading.Thread(target=forward, args=(source, target), daemon=True).start()

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
ENCODER_REPLACED = f"""
import sys
import torch
{FASTER}
def rewriting(real):
    def encode(event, **fields):
        if event == "case" and isinstance(fields.get("result"), dict):
            fields["result"] = faster(fields["result"])
        return real(event, **fields)
    return encode

for name, module in list(sys.modules.items()):
    if name.startswith(("harness", "__main__")) and callable(getattr(module, "encode", None)):
        module.encode = rewriting(module.encode)

def softmax(x):
    return torch.softmax(x, dim=-1)
"""

CHEATS = [
    Cheat("lines forged", "wire", "rows and the end of the run are written to the worker's pipe", FORGED_LINES),
    Cheat("channel edited", "wire", "the object that sends events gets a method that halves the times", CHANNEL_EDITED),
    Cheat("lines rewritten", "wire", "a thread behind the worker's pipe halves the times in every line",
          LINES_REWRITTEN),
    Cheat("encoder replaced", "wire", "the function that encodes events halves the times", ENCODER_REPLACED),
]  # fmt: skip
