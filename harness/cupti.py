"""Activity records straight from CUPTI, through the copy of its library that torch has loaded.

torch's profiler gives the same records (kineto.py), but spends more on each than the launch itself took, and that time
is lost to the row. Here CUPTI fills a buffer of ours, and `stop` reads the few fields that are needed at their places
in the records; those have stayed where they are from CUDA 11.8 to 13.0. A buffer holds far more records than a batch
makes: CUPTI's own thread then never has one to hand over while a launch waits for it.

Whoever starts registers its own buffers, so torch's profiler may be used in the same process. But it also has CUPTI
count in the processor's ticks, from then on and for everybody (12.7 us came out as 26.8): once it was used, `disturbed`
says so, and records have to come through it.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.activity import LostRecords, Record

KINDS = KERNEL, COPY, FILL = 10, 1, 2
"""CUPTI's numbers for them."""
KERNEL_RECORD = struct.Struct("<16xQQ16xI40xI8xQ44xI")
"""Of CUpti_ActivityKernel9 and 10: start, end, stream, correlation, name, graph."""
MEMORY_RECORD = struct.Struct("<4xB11xQQ8xII24xI")
"""Of CUpti_ActivityMemcpy6 and CUpti_ActivityMemset4: kind of copy, start, end, stream, correlation, graph."""
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
OLDEST = 18
"""CUDA 11.8's."""
BUFFER_BYTES = 32 << 20
FORCED = 1

_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Cupti:
    """Takes activity records between `start` and `stop`."""

    def __init__(self) -> None:
        self._library = _loaded()
        version = ctypes.c_uint32()
        self._ask("cuptiGetVersion", ctypes.byref(version))
        if version.value < OLDEST:
            raise LostRecords(f"CUPTI of version {version.value} has other records")
        self._buffers: dict[int, Any] = {}
        """All that there are, by address."""
        self._free: list[int] = []
        self._filled: list[tuple[int, int]] = []
        """Addresses, and how much of each is valid."""
        self._callbacks = _Requested(self._request), _Completed(self._complete)  # kept: CUPTI calls them
        self._names: dict[int, str] = {}
        _notice_profilers()

    @property
    def disturbed(self) -> bool:
        """torch's profiler was used meanwhile: times are no longer in nanoseconds."""
        return bool(_profiled)

    def start(self, host_too: bool = False) -> None:
        """The host's records are not needed: those of the device say whether they were part of a graph."""
        self._names.clear()  # a module that is loaded later may put another name at the place of an old one
        self._taken()  # what came too late for whoever stopped before
        self._ask("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in KINDS:
            self._ask("cuptiActivityEnable", kind)

    def stop(self) -> list[Record]:
        """To be called when the device has finished; hands over what it did, as far as CUPTI says."""
        for kind in KINDS:
            self._library.cuptiActivityDisable(kind)
        self._library.cuptiActivityFlushAll(FORCED)
        return [record for address, size in self._taken() for record in self._read(address, size)]

    def _taken(self) -> list[tuple[int, int]]:
        """The buffers that came back; they may be filled again after the next start."""
        taken, self._filled = self._filled, []
        self._free += [address for address, _size in taken]
        return taken

    def _read(self, address: int, size: int) -> Iterator[Record]:
        view, record = memoryview(self._buffers[address]).cast("B"), ctypes.c_void_p()
        advance, where = self._library.cuptiActivityGetNextRecord, ctypes.byref(record)
        buffer, valid = ctypes.c_void_p(address), ctypes.c_size_t(size)
        while advance(buffer, valid, where) == 0 and record.value is not None:
            at = record.value - address
            kind = view[at]
            if kind == KERNEL:
                start, end, stream, number, name, graph = KERNEL_RECORD.unpack_from(view, at)
                yield Record(self._name(name), start, end, stream, number, graph != 0)
            elif kind in (COPY, FILL):
                way, start, end, stream, number, graph = MEMORY_RECORD.unpack_from(view, at)
                yield Record(_moved(kind, way), start, end, stream, number, graph != 0)

    def _name(self, address: int) -> str:
        found = self._names.get(address)
        if found is None:
            found = self._names[address] = _demangled(ctypes.string_at(address))
        return found

    def _request(self, buffer: Any, size: Any, most: Any) -> None:
        if not self._free:
            made = (ctypes.c_uint8 * BUFFER_BYTES)()
            self._buffers[ctypes.addressof(made)] = made
            self._free.append(ctypes.addressof(made))
        buffer[0], size[0], most[0] = self._free.pop(), BUFFER_BYTES, 0  # as many records as there is room for

    def _complete(self, _context: Any, _stream: Any, buffer: int, _size: int, valid: int) -> None:
        self._filled.append((buffer, valid))

    def _ask(self, question: str, *words: Any) -> None:
        answer = getattr(self._library, question)(*words)
        if answer != 0:
            raise LostRecords(f"{question} answered {answer}")


_profiled: list[str] = []
"""Which of torch's ways into its profiler was taken."""


@functools.cache
def _notice_profilers() -> None:
    from torch.autograd import profiler

    for name in ("_prepare_profiler", "_enable_profiler"):
        setattr(profiler, name, _noticed(name, getattr(profiler, name)))


def _noticed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def entered(*words: Any, **named: Any) -> Any:
        _profiled.append(name)
        return function(*words, **named)

    return entered


def _moved(kind: int, way: int) -> str:
    return "Memset" if kind == FILL else f"Memcpy {COPIES.get(way, 'of another kind')}"


def _loaded() -> Any:
    """A second copy in the process would get nothing: CUPTI serves one."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(None, 5)[5] for line in lines if "/libcupti.so" in line}
    if len(paths) != 1:
        raise LostRecords(f"{len(paths)} copies of libcupti are loaded")
    return ctypes.CDLL(paths.pop())


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
