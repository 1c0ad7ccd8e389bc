"""Solutions that take their process down in different ways; ENTRY stands for the task's function."""

from __future__ import annotations

ILLEGAL_ACCESS = """
import torch
import triton
import triton.language as tl


@triton.jit
def far(p):
    tl.store(p + (tl.program_id(0).to(tl.int64) + 1) * 1000000000000, 1.0)


def ENTRY(**inputs):
    x = next(iter(inputs.values()))
    far[(64,)](x)
    torch.cuda.synchronize()
    return torch.empty_like(x)
"""
ENDLESS_LOOP = """
import torch
import triton
import triton.language as tl


@triton.jit
def spin(p):
    while tl.load(p, volatile=True) == 0.0:
        tl.store(p + 1, 0.0)


def ENTRY(**inputs):
    x = next(iter(inputs.values()))
    spin[(1,)](torch.zeros(2, device=x.device))
    torch.cuda.synchronize()
    return torch.empty_like(x)
"""
HARD_EXIT = """
import os


def ENTRY(**inputs):
    os._exit(0)
"""
SEGFAULT = """
import ctypes


def ENTRY(**inputs):
    ctypes.string_at(8)
"""
ABORT = """
import os


def ENTRY(**inputs):
    os.abort()
"""
KILLED = """
import os
import signal


def ENTRY(**inputs):
    os.kill(os.getpid(), signal.SIGKILL)
"""
ENDLESS = """
def ENTRY(**inputs):
    while True:
        pass
"""
ON_A_GPU = {"illegal memory access": ILLEGAL_ACCESS, "endless loop on the GPU": ENDLESS_LOOP}
ANYWHERE = {
    "os._exit": HARD_EXIT,
    "segfault in a host call": SEGFAULT,
    "abort": ABORT,
    "SIGKILL": KILLED,
    "endless loop": ENDLESS,
}
