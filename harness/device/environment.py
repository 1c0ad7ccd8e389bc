"""Describes this machine: processor, caches, memory, versions."""

from __future__ import annotations

import functools
import gc
import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

from harness.device.gpu import Gpu
from harness.shared import format as fmt
from harness.shared import used_files
from harness.shared.run_request import Environment, RunRequest

DEFAULT_CACHE = 32 << 20
ARM_PARTS = {"0xd0c": "Neoverse N1", "0xd40": "Neoverse V1", "0xd49": "Neoverse N2", "0xd4f": "Neoverse V2"}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@functools.lru_cache
def last_level_cache(root: str = "/sys/devices/system/cpu/cpu0/cache") -> int:
    """Bytes of the largest cache of the first CPU."""
    sizes = []
    for path in Path(root).glob("index*/size"):
        found = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
        if found:
            sizes.append(int(found[1]) * _UNITS.get(found[2], 1))
    return max(sizes, default=DEFAULT_CACHE)


def free_memory() -> int:
    """Bytes available without swapping."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) << 10 if found else 4 << 30


def gpu_cache() -> int:
    import torch

    return int(getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", DEFAULT_CACHE))


def free_gpu_memory() -> int:
    import torch

    return int(torch.cuda.mem_get_info()[0])


def give_back_gpu_memory() -> None:
    """Returns what torch keeps for later tensors to the driver, if that is over a quarter of a GPU's memory: the judge
    and the next worker need some as well."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.cuda.memory_reserved() > properties.total_memory // 4:
        gc.collect()
        torch.cuda.empty_cache()


def environment(device: str, gpu: Gpu | None) -> Environment:
    """The environment when the worker is ready; `for_task` adds what the task decides."""
    import torch

    from harness.device import roofline

    triton = _triton_version()
    cuda = device.startswith("cuda")
    return Environment(
        device=device,
        device_name=torch.cuda.get_device_name(device) if cuda else processor(),
        python=platform.python_version(),
        torch=torch.__version__,
        triton=triton,
        driver=gpu.nvml.driver() if gpu else None,
        uuid=gpu.uuid if gpu else None,
        sm_mhz=gpu.nvml.state().sm_mhz if gpu else None,
        bandwidth=roofline.copy_bandwidth(gpu) if gpu else None,
        host=socket.gethostname(),
    )


def for_task(known: Environment, request: RunRequest) -> Environment:
    """The environment of one run, with what the task and the request decide."""
    task = request.task
    on_cpu = task.device == "cpu" or known.device == "cpu"
    interpreted = task.device == "cuda" and known.device == "cpu"
    fields = dict(known.__dict__)
    l2 = "" if on_cpu else request.condition
    fields.update(interpreted=interpreted, condition=_condition(request, on_cpu, interpreted), l2=l2)
    if on_cpu:
        fields.update(device="cpu", device_name=processor(), threads=task.threads)
    return Environment(**fields)


def _condition(request: RunRequest, on_cpu: bool, interpreted: bool) -> str:
    task = request.task
    if interpreted:
        files = used_files.for_a_gpu(Path(request.source))
        return f"{', '.join(files)} not compiled, not timed" if files else "interpreted, not timed"
    if not on_cpu:
        return f"{request.condition} L2"
    threads = fmt.plural(task.threads, "thread")
    warm = ", mutated inputs warm" if task.mutates else ""
    return f"cold caches ({2 * last_level_cache() >> 20} MiB rotated{warm}), {threads}"


@functools.lru_cache
def processor() -> str:
    """The processor's name. On ARM, Linux reports only part numbers; a few are known here."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    if found:
        return found[1].strip()
    part = re.search(r"^CPU part\s*:\s*(\w+)$", text, re.MULTILINE)
    name = ARM_PARTS.get(part[1]) if part else None
    return f"{name or platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)
