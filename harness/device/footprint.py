"""For `kernbench doctor`: how much memory a waiting worker takes, the machine's and the GPU's."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from harness.device.gpu import Gpu
from harness.load import compiled


def measure() -> dict[str, int]:
    """Bytes, after doing in this process what a worker does before its first run; `gpu` only where NVML reports it."""
    found = {}
    if torch.cuda.is_available():
        gpu = Gpu("cuda:0")
        before = gpu.nvml.memory_used()
        torch.zeros(1, device=gpu.device)
        gpu.warm()
        compiled.load()
        after = gpu.nvml.memory_used()
        if before is not None and after is not None:
            found["gpu"] = after - before
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return {**found, "machine": (resident - shared) * os.sysconf("SC_PAGE_SIZE")}
