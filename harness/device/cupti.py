"""Activity records directly from CUPTI, through the copy of its library that torch has loaded.

torch's profiler provides the same records (kineto.py), but spends more time on each than the launch itself took, and
the row's budget pays for it. Here CUPTI fills our buffers (cupti_buffers.cpp), and `stop` reads the few required fields
at their offsets in the records, which have not moved from CUDA 11.8 to 13.0. Anything doubtful raises LostRecords: a
record without times, dropped records, a buffer with an unexpected end.

Each start registers its own buffers, so torch's profiler may be used in the same process. But the profiler also
switches CUPTI to CPU ticks, permanently and for the whole process (12.7 us came out as 26.8). `disturbed` reports that
it was used; from then on records must come from the profiler.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import host
from harness.device.activity import LostRecords, Record
from harness.private import torch_private
from harness.shared import format as fmt

KINDS = KERNEL, COPY, FILL = 10, 1, 2
"""CUPTI's numbers for kernel, memcpy and memset records."""
KERNEL_RECORD = struct.Struct("<16xQQ16xI32s8xI8xQ44xI")
"""CUpti_ActivityKernel8 to 10: start, end, stream, launch, correlation, name, graph."""
MEMORY_RECORD = struct.Struct("<4xB11xQQ8xII24xI")
"""CUpti_ActivityMemcpy6 and CUpti_ActivityMemset4: kind of copy, start, end, stream, correlation, graph."""
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
OLDEST = 18
"""CUPTI version of CUDA 11.8."""
FORCED = 1
NO_MORE = 12
"""CUPTI_ERROR_MAX_LIMIT_REACHED, at the end of a buffer."""


class Cupti:
    """Collects activity records between `start` and `stop`."""

    def __init__(self) -> None:
        self._library, self._buffers = _loaded(), _buffers()
        version = ctypes.c_uint32()
        self._ask("cuptiGetVersion", ctypes.byref(version))
        if version.value < OLDEST:
            raise LostRecords(f"CUPTI version {version.value} uses a different record layout")
        self._names: dict[int, str] = {}
        if not _notice_profilers():
            raise LostRecords("cannot detect whether torch's profiler is in use")

    @property
    def disturbed(self) -> bool:
        """Whether torch's profiler was used in this process, so that times are no longer in nanoseconds."""
        return bool(_profiled)

    def start(self, host_too: bool = False) -> None:
        """Ignores `host_too`: the device's records already show whether they were part of a graph."""
        self._names.clear()  # a module loaded later may put another name at an old address
        self._drain()
        self._dropped()
        try:
            self._ask("cuptiActivityRegisterCallbacks", self._buffers.request, self._buffers.complete)
            for kind in KINDS:
                self._ask("cuptiActivityEnable", kind)
        except LostRecords:
            self._end()
            raise

    def stop(self) -> list[Record]:
        """Returns the records. Call it after the device has finished."""
        self._end()
        try:
            found = [record for address, size in self._taken() for record in self._read(address, size)]
        finally:
            self._drain()
        if dropped := self._dropped():
            raise LostRecords(f"CUPTI dropped {fmt.plural(dropped, 'record')}")
        if self.disturbed:
            raise LostRecords("torch's profiler was used and changed CUPTI's clock")
        return found

    def _end(self) -> None:
        for kind in KINDS:
            self._library.cuptiActivityDisable(kind)
        self._library.cuptiActivityFlushAll(FORCED)

    def _dropped(self) -> int:
        """Dropped records since the last call."""
        count = ctypes.c_size_t()
        self._library.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(count))
        return count.value

    def _taken(self) -> Iterator[tuple[int, int]]:
        """Address and valid bytes of every returned buffer."""
        size = ctypes.c_size_t()
        while address := self._buffers.take(ctypes.byref(size)):
            yield address, size.value

    def _drain(self) -> None:
        """Discards unread buffers, left by an error or returned after the last stop, before the next start."""
        for _ in self._taken():
            pass
        self._buffers.give_back()

    def _read(self, address: int, size: int) -> Iterator[Record]:
        view = memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")
        advance, record = self._library.cuptiActivityGetNextRecord, ctypes.c_void_p()
        buffer, valid, where = ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.byref(record)
        while (answer := advance(buffer, valid, where)) == 0:
            at = (record.value or 0) - address
            kind = view[at]
            if kind == KERNEL:
                start, end, stream, launch, number, place, graph = KERNEL_RECORD.unpack_from(view, at)
                name = self._name(place)
            elif kind in (COPY, FILL):
                way, start, end, stream, number, graph = MEMORY_RECORD.unpack_from(view, at)
                launch = b""
                name = "Memset" if kind == FILL else f"Memcpy {COPIES.get(way, 'of another kind')}"
            else:
                continue
            if not 0 < start <= end:
                raise LostRecords(f"CUPTI recorded no valid times for {name}")
            yield Record(name, start, end, stream, number, graph != 0, launch)
        if answer != NO_MORE:
            raise LostRecords(f"a CUPTI buffer ended with error {answer}")

    def _name(self, address: int) -> str:
        found = self._names.get(address)
        if found is None:
            if not address:
                raise LostRecords("CUPTI reported a kernel without a name")
            found = self._names[address] = _demangled(ctypes.string_at(address))
        return found

    def _ask(self, question: str, *words: Any) -> None:
        answer = getattr(self._library, question)(*words)
        if answer != 0:
            raise LostRecords(f"{question} returned {answer}")


def _loaded() -> Any:
    """The loaded copy of libcupti: a second copy in the process would receive no records."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(None, 5)[5] for line in lines if "/libcupti.so" in line}
    if len(paths) != 1:
        raise LostRecords(f"{len(paths)} copies of libcupti are loaded")
    return ctypes.CDLL(paths.pop())


@functools.cache
def _buffers() -> ctypes.CDLL:
    """One pool for the lifetime of the process: CUPTI may keep a buffer after recording has stopped."""
    try:
        library = host.load("cupti_buffers.cpp")._library
    except host.CompileError as problem:
        raise LostRecords(str(problem)) from None
    library.take.restype, library.give_back.restype = ctypes.c_void_p, None
    return library


_profiled: list[str] = []
"""The entry points of torch's profiler that were called."""


@functools.cache
def _notice_profilers() -> bool:
    return torch_private.watch_profilers(lambda name: _profiled.append(name))


@functools.cache
def _demangled(name: bytes) -> str:
    if not name.startswith(b"_Z"):
        return name.decode(errors="replace")
    demangle, free = ctypes.CDLL("libstdc++.so.6").__cxa_demangle, ctypes.CDLL(None).free
    demangle.restype, status = ctypes.c_void_p, ctypes.c_int()
    text = demangle(name, None, None, ctypes.byref(status))
    if not text:
        return name.decode(errors="replace")
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        free(ctypes.c_void_p(text))
