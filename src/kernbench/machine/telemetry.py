"""Samples the machine once a second for the GPU pane: NVML for the GPUs, /proc for the rest.

A reader takes one Sample; Telemetry reads in its thread and passes each on. A field that the driver does not provide is
None. GPUs are identified by uuid; those visible under CUDA_VISIBLE_DEVICES are listed, in its order. If it counts cards
of several models, NVML does not know CUDA's numbers, and all are listed. Nothing here affects timing: the worker reads
the clocks that count.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from harness.shared.codes import THROTTLES

LIBRARY_NOT_FOUND = 12
"""NVML's code for a machine without the driver."""


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    name: str | None = None
    memory: int | None = None
    """Bytes."""
    ours: bool = False
    """A descendant of this program: the worker, its spare, or a waiting profiler."""


@dataclass(frozen=True)
class GpuSample:
    index: int
    """Position among those listed; CUDA's number if all cards are the same model."""
    uuid: str
    name: str
    busy: int | None = None
    """Percent of the last interval during which a kernel ran."""
    bus: int | None = None
    """Percent of it during which memory was read or written."""
    memory_used: int | None = None
    memory_total: int | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_mhz: int | None = None
    memory_max_mhz: int | None = None
    power_w: float | None = None
    limit_w: float | None = None
    celsius: int | None = None
    limits: tuple[str, ...] | None = None
    """Why the clock is not higher."""
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True)
class HostSample:
    cores: int
    busy: float | None = None
    """Percent of all cores."""
    memory_used: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True)
class Sample:
    host: HostSample
    gpus: tuple[GpuSample, ...] = ()
    why: str = ""
    """Why there is no GPU to show."""
    is_uncounted: bool = False
    """Some listed GPUs may be hidden from CUDA, by CUDA numbers that NVML does not know."""


class Reader(Protocol):
    def read(self) -> Sample: ...


class Telemetry:
    """Reads in a daemon thread until stopped; `tell` is called in that thread."""

    def __init__(self, reader: Reader, tell: Callable[[Sample], None], seconds: float = 1.0) -> None:
        self._reader, self._tell, self._seconds = reader, tell, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns at once: a hanging driver must not block the program."""
        self._stop.set()

    def _run(self) -> None:
        while True:
            try:
                sample = self._reader.read()
            except Exception as problem:  # a pane must not stop the program
                sample = Sample(HostSample(os.cpu_count() or 1), why=f"telemetry failed: {problem}")
            if self._stop.is_set():
                return
            self._tell(sample)
            if self._stop.wait(self._seconds):
                return


class MachineReader:
    """Reads this machine. NVML is loaded with the first sample, in the same thread."""

    def __init__(self, environ: Mapping[str, str] | None = None, nvml: Any = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._nvml = nvml
        self._handles: list[tuple[GpuSample, Any]] | None = None
        self._is_uncounted = False
        self._why = ""
        self._host = HostReader()
        self._ours: set[int] = set()
        """As of the last sample: a process stays ours while the driver lists it, even after its parent exits."""

    def read(self) -> Sample:
        if self._handles is None:
            self._open()
        gpus = tuple(self._gpu(sample, handle) for sample, handle in self._handles or ())
        self._ours = {process.pid for gpu in gpus for process in gpu.processes or () if process.ours}
        return Sample(self._host.read(), gpus, self._why, self._is_uncounted)

    def _open(self) -> None:
        self._handles = []
        try:
            if self._nvml is None:
                import pynvml

                self._nvml = pynvml
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
        except ImportError:
            self._why = "nvidia-ml-py is not installed"
            return
        except Exception as problem:  # pynvml creates its error classes at run time
            self._why = _why_closed(problem)
            return
        asked = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        found = [handle for handle in asked if handle is not None]  # NVML also counts GPUs that it may not open
        by_uuid = {_text(self._ask("nvmlDeviceGetUUID", handle)): handle for handle in found}
        chosen = self._environ.get("CUDA_VISIBLE_DEVICES")
        self._is_uncounted = self._counts_different_cards(chosen, found)
        seen = visible(list(by_uuid), None if self._is_uncounted else chosen)
        self._handles = [(self._fixed(index, uuid, by_uuid[uuid]), by_uuid[uuid]) for index, uuid in enumerate(seen)]
        self._why = "" if seen else _why_none(count, len(found), chosen or "")

    def _counts_different_cards(self, chosen: str | None, handles: Sequence[Any]) -> bool:
        """CUDA numbers the fastest card first, NVML by bus id."""
        if not chosen or self._environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
            return False
        counted = any(part.strip().isdigit() for part in chosen.split(","))
        return counted and len({_text(self._ask("nvmlDeviceGetName", handle)) for handle in handles}) > 1

    def _fixed(self, index: int, uuid: str, handle: Any) -> GpuSample:
        """The fields that do not change while the program runs."""
        return GpuSample(
            index=index,
            uuid=uuid,
            name=_text(self._ask("nvmlDeviceGetName", handle)) or "GPU",
            sm_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, 1),
            memory_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, 2),
        )

    def _gpu(self, fixed: GpuSample, handle: Any) -> GpuSample:
        use = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # the name in drivers before 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return replace(
            fixed,
            busy=getattr(use, "gpu", None),
            bus=getattr(use, "memory", None),
            memory_used=getattr(memory, "used", None),
            memory_total=getattr(memory, "total", None),
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", handle, 1),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", handle, 2),
            power_w=_watts(self._ask("nvmlDeviceGetPowerUsage", handle)),
            limit_w=_watts(self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            celsius=self._ask("nvmlDeviceGetTemperature", handle, 0),
            limits=None if reasons is None else tuple(word for bit, word in THROTTLES.items() if reasons & bit),
            processes=self._processes(handle),
        )

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        found = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if found is None:
            return None
        return tuple(
            GpuProcess(item.pid, _name(item.pid), item.usedGpuMemory, item.pid in self._ours or _is_below_us(item.pid))
            for item in found
        )

    def _ask(self, question: str, *words: Any) -> Any:
        try:
            return getattr(self._nvml, question)(*words)
        except Exception:  # not supported, no permission, a card off the bus: shown as a dash
            return None


class HostReader:
    def __init__(self) -> None:
        self._cores = len(os.sched_getaffinity(0))
        self._before = _cpu_ticks()

    def read(self) -> HostSample:
        now, before = _cpu_ticks(), self._before
        self._before = now
        busy = None
        if now and before and now[1] > before[1]:
            busy = 100.0 * (now[0] - before[0]) / (now[1] - before[1])
        memory = _memory()
        total, free = memory.get("MemTotal"), memory.get("MemAvailable")
        used = total - free if total is not None and free is not None else None
        return HostSample(self._cores, busy, used, total)


def _why_closed(problem: Exception) -> str:
    if getattr(problem, "value", None) == LIBRARY_NOT_FOUND:
        return "no NVIDIA driver here"
    return str(problem) if str(problem).startswith("NVML") else f"NVML: {problem}"


def _why_none(count: int, opened: int, chosen: str) -> str:
    if not opened:
        these = "the GPU" if count == 1 else f"any of the {count} GPUs"
        return f"NVML is not allowed to open {these}" if count else "NVML sees no GPU"
    return "NVML does not report on MIG slices" if "MIG-" in chosen else "CUDA_VISIBLE_DEVICES hides every GPU"


def visible(uuids: Sequence[str], chosen: str | None) -> list[str]:
    """The GPUs visible under CUDA_VISIBLE_DEVICES, in its order; like CUDA it stops at the first missing one."""
    if chosen is None:
        return list(uuids)
    seen: list[str] = []
    for word in (part.strip() for part in chosen.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            found = uuids[int(word)]
        else:
            matches = [uuid for uuid in uuids if word and uuid.startswith(word)]
            if len(matches) != 1:
                return seen
            found = matches[0]
        if found in seen:
            return []
        seen.append(found)
    return seen


def in_use(gpus: Sequence[GpuSample], device: str, uuid: str | None = None) -> GpuSample | None:
    """The GPU of the worker's device: by uuid if the worker reports one, else by CUDA's number."""
    if uuid:
        return next((gpu for gpu in gpus if gpu.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-")), None)
    kind, _, number = device.partition(":")
    return next((gpu for gpu in gpus if kind == "cuda" and gpu.index == int(number or 0)), None)


def idle(gpus: Sequence[GpuSample]) -> GpuSample | None:
    """The least busy GPU without processes; the first if several are equal."""

    def trouble(gpu: GpuSample) -> tuple[int, int, int]:
        return len(gpu.processes or ()), gpu.busy or 0, gpu.memory_used or 0

    return min(gpus, key=trouble, default=None)


def strangers(gpu: GpuSample) -> tuple[GpuProcess, ...]:
    """Processes that are not ours; none if NVML does not list ours either, as in some containers."""
    listed = gpu.processes or ()
    if not any(process.ours for process in listed):
        return ()
    return tuple(process for process in listed if not process.ours)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _name(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return None


def _is_below_us(pid: int) -> bool:
    while pid > 1 and pid != os.getpid():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            pid = int(fields.rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return pid == os.getpid()


def _cpu_ticks() -> tuple[int, int] | None:
    """Busy and total ticks since boot."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _memory() -> dict[str, int]:
    """Bytes by name."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        pairs = (line.split() for line in lines)
        return {words[0].rstrip(":"): int(words[1]) * 1024 for words in pairs if len(words) > 1}
    except (OSError, ValueError):
        return {}
