"""What a cheat and an honest oddity are made of: a source of solution.py, where it runs, and how it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLASSES = {
    "apart": "the timed call is distinguished from the checked one and does part of the work",
    "kept": "results of earlier calls are returned again",
    "answer": "the answer, or what decides about it, is taken from the harness",
    "judge": "the comparison or its findings are replaced",
    "meter": "the clock or its records are changed",
    "wire": "what the worker reports is forged",
    "opponent": "the side to beat is slowed down",
    "cache": "caches are prepared for the timed call",
    "later": "work is left to a thread, another stream, or the time between two calls",
    "files": "files of the task or of its log are rewritten",
    "range": "right only for values like those that are drawn",
    "inputs": "inputs are changed so that less is left to do",
}
"""Of the cheats; each has three mechanisms or more."""
Device = Literal["cpu", "cuda"]
EITHER: tuple[Device, ...] = ("cpu", "cuda")
CPU: tuple[Device, ...] = ("cpu",)
CUDA: tuple[Device, ...] = ("cuda",)


@dataclass(frozen=True)
class Cheat:
    name: str
    group: str
    """A key of CLASSES."""
    how: str
    """The mechanism in one sentence."""
    source: str
    """Of solution.py; FOLDER in it means the task's."""
    devices: tuple[Device, ...] = EITHER


@dataclass(frozen=True)
class Oddity:
    """Honest: right in every call, whatever it looks like."""

    name: str
    how: str
    source: str
    devices: tuple[Device, ...] = EITHER


TASK = """
name = "softmax"
entry = "softmax"
layout = "any"
device = "cpu"
threads = 1
[tolerance]
float32 = { atol = 1e-5, rtol = 1e-3 }
[[case]]
id = "a_48x512"
axes = { rows = 48, cols = 512 }
[[case]]
id = "b_36x700"
axes = { rows = 36, cols = 700 }
"""
_LARGE = TASK.replace("48", "4096").replace("36", "3000")
_SMALL = """[[case]]
id = "c_256x512"
axes = { rows = 256, cols = 512 }
"""
GPU_TASK = _LARGE.replace('device = "cpu"\nthreads = 1\n', "libraries = true\n") + _SMALL
"""Rows that keep a GPU busy for some ten microseconds, and one whose input a kernel can keep in the L2."""
PART = """
def part(x):
    out = torch.empty_like(x)
    half = x.shape[0] // 2
    torch.softmax(x[:half], -1, out=out[:half])
    return out
"""
"""Half of the rows; what was in the memory stays in the other half."""
UP = """
def above(start=2):
    frame = sys._getframe(start)
    while frame is not None:
        yield frame
        frame = frame.f_back
"""
"""The frames of the callers."""
