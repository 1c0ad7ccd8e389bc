"""GPU state that decides whether a time can be trusted: clocks, throttling, other processes, the lock, the L2.

NVML is called through ctypes, so the worker's Python needs no package for it. A query that the driver refuses returns
None. CUDA and NVML number devices differently, so the device is looked up by its UUID.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.device import own_processes
from harness.device.activity import LostRecords, Record, Recorder
from harness.private import process_state
from harness.shared.codes import THROTTLES

SPOILING = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons to drop a block; a power cap (0x4) affects every side equally and is only reported."""
USUAL_LAPS = (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0)
"""Flush lengths that most sides need; prepared before the first row is timed."""

PERSISTING_L2, ACCESS_POLICY_WINDOW = 6, 1
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE and CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW."""
_NO_WINDOW = (ctypes.c_byte * 64)()
"""A CUstreamAttrValue of zeros: a window of no bytes."""
PROOF, LONG_LAPS = 3, 8.0
"""Number and length of the flushes that test a recorder: long enough that the surrounding events add little."""


@dataclass(frozen=True)
class GpuState:
    sm_mhz: int | None = None
    reasons: int | None = None

    @property
    def throttled(self) -> tuple[str, ...]:
        return tuple(word for bit, word in THROTTLES.items() if (self.reasons or 0) & bit & SPOILING)


class Nvml:
    """The few NVML queries that the worker needs; any result may be None."""

    def __init__(self, uuid: str) -> None:
        self._library: Any = None
        self._handle = ctypes.c_void_p()
        with contextlib.suppress(OSError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
                if library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self._handle)) == 0:
                    self._library = library

    def state(self) -> GpuState:
        return GpuState(self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, 1), self._reasons())

    def watts(self) -> float | None:
        milliwatts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        return None if milliwatts is None else milliwatts / 1000

    def memory_peak(self) -> float | None:
        """Peak bytes per second of the memory bus at its highest clock."""
        return _memory_peak(self)

    def foreign_processes(self) -> int | None:
        """Number of other processes that compute on this GPU; None if the list is unreliable."""
        pids = self._pids()
        if pids is None or os.getpid() not in pids:  # some containers show pids of another namespace
            return None
        return len([pid for pid in pids if pid != os.getpid() and not own_processes.is_own(pid)])

    def memory_used(self) -> int | None:
        """Bytes in use by all processes."""
        if self._library is None:
            return None
        sizes = (ctypes.c_ulonglong * 3)()  # total, free, used
        return int(sizes[2]) if self._library.nvmlDeviceGetMemoryInfo(self._handle, sizes) == 0 else None

    def driver(self) -> str | None:
        if self._library is None:
            return None
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self._library.nvmlSystemGetDriverVersion(text, 96) == 0 else None

    def _reasons(self) -> int | None:
        return self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)

    def _number(self, function: str, kind: Any, *arguments: int) -> int | None:
        if self._library is None:
            return None
        value = kind()
        status = getattr(self._library, function)(self._handle, *arguments, ctypes.byref(value))
        return int(value.value) if status == 0 else None

    def _pids(self) -> list[int] | None:
        if self._library is None:
            return None

        class Process(ctypes.Structure):
            _fields_ = [
                ("pid", ctypes.c_uint),
                ("memory", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint),
            ]

        count = ctypes.c_uint(64)
        entries = (Process * 64)()
        query = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if query is None or query(self._handle, ctypes.byref(count), entries) != 0:
            return None
        return [entries[index].pid for index in range(count.value)]


@functools.cache  # the driver takes 2 ms to say it, and every row asks
def _memory_peak(nvml: Nvml) -> float | None:
    clock = nvml._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, 2)
    width = nvml._number("nvmlDeviceGetMemoryBusWidth", ctypes.c_uint)
    return None if clock is None or width is None else 2.0 * clock * 1e6 * width / 8


@contextlib.contextmanager
def locked(uuid: str, beat: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Makes workbenches on one GPU time in turn; calls `beat` while waiting for the lock."""
    path = Path(tempfile.gettempdir()) / f"kernbench-{uuid}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:  # another user's lock that cannot be opened: timing together beats not timing
        yield
        return
    try:
        while not _lock(handle):
            beat()
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def reset_persisting_l2() -> None:
    """Unpins L2 lines, which survive any flush if a solution pinned them.

    Resets all that pins: the access policy window of the current stream, the part of the L2 that is set aside for
    pinned lines, which is none by default, and the lines themselves. A window of another stream stays, but pins nothing
    without a part set aside. Before every batch, so it makes few calls: a limit that is still at its default is only
    read.
    """
    import torch

    driver = _driver()
    if driver is None:
        return
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    driver.cuStreamSetAttribute(stream, ctypes.c_int(ACCESS_POLICY_WINDOW), _NO_WINDOW)
    aside = ctypes.c_size_t()
    known = driver.cuCtxGetLimit(ctypes.byref(aside), ctypes.c_int(PERSISTING_L2)) == 0
    if aside.value or not known:
        driver.cuCtxSetLimit(ctypes.c_int(PERSISTING_L2), ctypes.c_size_t(0))
    driver.cuCtxResetPersistingL2Cache()


def set_bytes(address: int, apart: int, byte: int, width: int, count: int) -> None:
    """Sets strips of a GPU's memory, on the current stream; by the driver, because torch takes 15 us."""
    driver, size, value = _driver(), ctypes.c_size_t, ctypes.c_ubyte(byte)
    stream = ctypes.c_void_p(process_state.cuda_current()[1])
    if count == 1:
        driver.cuMemsetD8Async(size(address), value, size(width), stream)
    else:
        driver.cuMemsetD2D8Async(size(address), size(apart), value, size(width), size(count), stream)


@functools.cache
def _driver() -> Any:
    """CUDA's driver library, or None."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


class Gpu:
    """One CUDA device as the worker uses it; created once, with the slow parts initialized on first use."""

    def __init__(self, device: str) -> None:
        import torch

        properties: Any = torch.cuda.get_device_properties(device)
        self.device = device
        self.uuid = f"GPU-{properties.uuid}"
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 64 << 20))
        self.memory_bytes = int(properties.total_memory)
        self.nvml = Nvml(self.uuid)
        self._recorder: Recorder | None = None
        self._flushes: dict[str, Any] = {}

    def memory_free(self) -> float:
        """Share of its memory that no process uses."""
        import torch

        free, total = torch.cuda.mem_get_info(self.device)
        return float(free / total)

    def warm(self) -> None:
        """Initializes flush and recorder, which is slow, while the worker is idle."""
        flush = self.flush("cold")
        for laps in USUAL_LAPS:
            flush.ready(laps)
        with contextlib.suppress(ImportError, AttributeError, RuntimeError):
            _ = self.recorder

    @property
    def recorder(self) -> Recorder:
        """Collects activity records; raises if torch was built without CUPTI."""
        from harness.device.cupti import Cupti

        if self._recorder is None:
            self._recorder = _recorder(self.flush("cold"))
        elif isinstance(self._recorder, Cupti) and self._recorder.disturbed:
            self._recorder = _through_torch(self.flush("cold"), "the source used the profiler")
        return self._recorder

    def flush(self, condition: Any) -> Any:
        from harness.device.flush import Flush

        if condition not in self._flushes:
            self._flushes[condition] = Flush(self.device, self.l2_bytes, condition)
        return self._flushes[condition]


def _recorder(flush: Any) -> Recorder:
    """CUPTI, if a test shows that it reports every launch correctly; otherwise torch's profiler."""
    from harness.device.cupti import Cupti

    try:
        found = Cupti()
        flush.ready(LONG_LAPS)
        found.start()
        spans = [flush.timed(LONG_LAPS) for _ in range(PROOF)]
        if _is_whole(found.stop(), flush.names.mark, spans):
            return found
        why = "CUPTI did not report every launch correctly"
    except (LostRecords, OSError, AttributeError) as problem:
        why = str(problem)
    return _through_torch(flush, why)


def _through_torch(flush: Any, why: str) -> Recorder:
    from harness.device.kineto import Kineto

    print(f"using torch's profiler for activity records, which is slower: {why}")
    made = Kineto()
    made.warm(flush.once)
    return made


def _is_whole(records: Sequence[Record], mark: str, spans: Sequence[float]) -> bool:
    """Two flushes per span, the second within it and as long as the events say, which shows that times are in ns."""
    ordered = sorted(records, key=lambda record: record.correlation)
    if len(ordered) != 2 * len(spans) or len({record.stream for record in ordered}) != 1:
        return False
    if any(record.name != mark or not record.graph for record in ordered):
        return False
    return all(0.7 * span <= record.us <= 1.02 * span + 1.0 for record, span in zip(ordered[1::2], spans, strict=True))
