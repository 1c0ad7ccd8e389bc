"""What a day of edits leaves in the worker: resident memory, and what it holds on GPUs, over many edits of a case.

`python tests/measure/measure_worker_memory.py [TASK] [--edits N]`
"""

from __future__ import annotations

import argparse
import asyncio
import os
from dataclasses import replace
from pathlib import Path

from bench import figure

from kernbench.engine.jobs import Options
from kernbench.selfcheck.task_copy import TaskCopy

parser = argparse.ArgumentParser()
parser.add_argument("task", nargs="?", default="softmax_host")
parser.add_argument("--edits", type=int, default=100)


async def measure(task: str, edits: int) -> None:
    sizes = []
    async with TaskCopy(task, Options(), lambda _line: None) as shop:
        smallest = min(shop.session.task.timed, key=lambda case: len(str(case.axes)), default=None)
        shop.session.options = replace(shop.session.options, case=smallest.id if smallest else None)
        for number in range(edits + 1):
            shop.edit(number)
            await shop.run()
            if number in (5, edits // 2, edits):
                pid = shop.session.supervisor.pids[0]
                sizes.append(resident(pid) / 1e6)
                held = gpu_memory(pid)
                figure(
                    f"resident after {number} edits", f"{sizes[-1]:.0f} MB", f"{held:.0f} MB on GPUs" if held else ""
                )
    figure(f"growth from edit 5 to edit {edits}", f"{sizes[-1] - sizes[0]:+.0f} MB")


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def gpu_memory(pid: int) -> float | None:
    """Megabytes the process holds on GPUs, where NVML says."""
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        found = [item for device in devices for item in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]
    except Exception:  # no driver, no NVML, no permission: then it is not known
        return None
    used = [item.usedGpuMemory for item in found if item.pid == pid and item.usedGpuMemory]
    return sum(used) / 1e6 if used else None


given = parser.parse_args()
asyncio.run(measure(given.task, max(given.edits, 10)))
