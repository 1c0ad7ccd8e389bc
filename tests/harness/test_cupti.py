"""Records read from CUPTI's buffers, with a library that fills them as the real one does."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness import cupti, gpu, kineto
from harness.activity import LostRecords, Names, Record

SIZES = {cupti.KERNEL: 216, cupti.COPY: 96, cupti.FILL: 88, 37: 40}
"""Bytes of a record; the last kind is none that was asked for."""
GARBAGE = 0xEE
REFUSED = 15


def packed(kind: int, fields: dict[int, tuple[str, int]]) -> bytes:
    """A record with its fields where the headers of CUDA 11.8 to 13.0 have them, and garbage everywhere else."""
    made = bytearray([GARBAGE]) * SIZES[kind]
    for place, (form, value) in {0: ("I", kind), **fields}.items():
        struct.pack_into(f"<{form}", made, place, value)
    return bytes(made)


def kernel(name: bytes, start: int, end: int, stream: int, number: int, graph: int = 0) -> bytes:
    text = ctypes.c_char_p(name)
    KEPT.append(text)
    place = ctypes.cast(text, ctypes.c_void_p).value
    assert place is not None
    fields = {16: ("Q", start), 24: ("Q", end), 48: ("I", stream), 92: ("I", number), 104: ("Q", place)}
    return packed(cupti.KERNEL, {**fields, 156: ("I", graph)})


def moved(kind: int, way: int, start: int, end: int, stream: int, number: int, graph: int = 0) -> bytes:
    fields = {4: ("B", way), 16: ("Q", start), 24: ("Q", end), 40: ("I", stream), 44: ("I", number)}
    return packed(kind, {**fields, 72: ("I", graph)})


KEPT: list[Any] = []


class Library:
    """What is launched while records are taken comes back in buffers when it is asked to flush."""

    def __init__(self, version: int = 26, a_buffer: int = 1000) -> None:
        self.version, self.a_buffer = version, a_buffer
        """A buffer is handed back after so many records."""
        self.pending: list[bytes] = []
        self.on: set[int] = set()
        self.refuses = ""
        self._callbacks: tuple[Any, Any] | None = None

    def cuptiGetVersion(self, place: Any) -> int:
        place._obj.value = self.version
        return 0

    def cuptiActivityRegisterCallbacks(self, *callbacks: Any) -> int:
        self._callbacks = callbacks  # type: ignore[assignment]
        return REFUSED if self.refuses == "buffers" else 0

    def cuptiActivityEnable(self, kind: int) -> int:
        self.on.add(kind)
        return REFUSED if self.refuses == "kinds" else 0

    def cuptiActivityDisable(self, kind: int) -> int:
        self.on.discard(kind)
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:
        assert flag == cupti.FORCED
        assert self._callbacks is not None
        request, complete = self._callbacks
        while self.pending:
            some, self.pending = self.pending[: self.a_buffer], self.pending[self.a_buffer :]
            buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
            request(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
            data = b"".join(some)
            assert (size.value, most.value) == (cupti.BUFFER_BYTES, 0)
            assert buffer.value is not None
            ctypes.memmove(buffer.value, data, len(data))
            complete(None, 0, buffer, size, len(data))
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, where: Any) -> int:
        record = where._obj
        last = record.value
        following = buffer.value if last is None else last + SIZES[ctypes.c_uint8.from_address(last).value]
        if following >= buffer.value + valid.value:
            return 12
        record.value = following
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(cupti, "_loaded", lambda: made)
    monkeypatch.setattr(cupti, "BUFFER_BYTES", 1 << 16)
    return made


def test_kernels_copies_and_fills_are_read_and_nothing_else(library: Library) -> None:
    recorder = cupti.Cupti()
    recorder.start()
    assert library.on == {cupti.KERNEL, cupti.COPY, cupti.FILL}
    begin = 1_700_000_000_000_000_000
    library.pending = [
        kernel(b"own", begin, begin + 512, 7, 40),
        kernel(b"_ZN2at6native6kernelIfEEvPT_", begin + 600, begin + 700, 13, 41, graph=3),
        packed(37, {}),
        moved(cupti.COPY, 8, 5, 9, 7, 42),
        moved(cupti.COPY, 99, 5, 9, 7, 43),
        moved(cupti.FILL, 0, 10, 12, 7, 44, graph=1),
    ]
    assert recorder.stop() == [
        Record("own", begin, begin + 512, 7, 40),
        Record("void at::native::kernel<float>(float*)", begin + 600, begin + 700, 13, 41, graph=True),
        Record("Memcpy DtoD", 5, 9, 7, 42),
        Record("Memcpy of another kind", 5, 9, 7, 43),
        Record("Memset", 10, 12, 7, 44, graph=True),
    ]
    assert library.on == set()


def test_buffers_are_used_again_and_a_batch_may_take_several(library: Library) -> None:
    library.a_buffer = 2
    recorder = cupti.Cupti()
    for _ in range(3):
        recorder.start()
        library.pending = [kernel(b"own", at, at + 1, 7, at) for at in range(1, 6)]
        assert [record.correlation for record in recorder.stop()] == [1, 2, 3, 4, 5]
    assert len(recorder._buffers) == len(recorder._free) == 3


def test_what_came_after_a_stop_is_not_the_next_batchs(library: Library) -> None:
    recorder = cupti.Cupti()
    recorder.start()
    recorder.stop()
    library.pending = [kernel(b"late", 1, 2, 7, 1)]
    library.cuptiActivityFlushAll(cupti.FORCED)
    recorder.start()
    library.pending = [kernel(b"own", 3, 4, 7, 2)]
    assert [record.name for record in recorder.stop()] == ["own"]
    assert len(recorder._buffers) == len(recorder._free)


@pytest.mark.parametrize("what", ["buffers", "kinds"])
def test_a_refusal_says_that_there_will_be_no_records(library: Library, what: str) -> None:
    recorder = cupti.Cupti()
    library.refuses = what
    with pytest.raises(LostRecords, match="answered 15"):
        recorder.start()


def test_an_older_cupti_is_not_read(library: Library) -> None:
    library.version = 17
    with pytest.raises(LostRecords, match="version 17"):
        cupti.Cupti()


def test_one_copy_of_the_library_is_asked_and_only_one_that_torch_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 123   {}\n"
    opened: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda path: opened.append(path))
    for maps, finds in (
        (line.format("/usr/lib/libc.so.6"), None),
        (line.format("/opt/with space/libcupti.so.13") * 2, "/opt/with space/libcupti.so.13"),
        (line.format("/a/libcupti.so.12") + line.format("/b/libcupti.so.13"), None),
    ):
        monkeypatch.setattr(cupti.Path, "read_text", lambda _path, maps=maps: maps)
        if finds is None:
            with pytest.raises(LostRecords, match=r"\d copies"):
                cupti._loaded()
        else:
            cupti._loaded()
    assert opened == ["/opt/with space/libcupti.so.13"]


class Flush:
    """Puts what it is given on the device."""

    names = Names("mark", "pause")

    def __init__(self, library: Library, *records: Callable[[int], bytes]) -> None:
        self._library, self._records, self._number = library, records, 0

    def once(self) -> None:
        self._number += 1
        self._library.pending += [made(self._number) for made in self._records]


def whole(number: int) -> bytes:
    return kernel(b"mark", number * 1000, number * 1000 + 900, 7, number, graph=5)


@pytest.mark.parametrize(
    ("records", "proven"),
    [
        ([whole], True),
        ([], False),  # another has registered its own buffers meanwhile
        ([whole, whole], False),
        ([lambda number: kernel(b"mark", number, number + 900, 7, number)], False),  # of a graph, and does not say so
        ([lambda number: kernel(b"mark", 0, 1 << 60, 7, number, graph=5)], False),
    ],
)
def test_cupti_is_used_where_it_tells_what_was_launched(
    library: Library, monkeypatch: pytest.MonkeyPatch, records: list[Callable[[int], bytes]], proven: bool
) -> None:
    instead = SimpleNamespace(warm=lambda launch: launch())
    monkeypatch.setattr(kineto, "Kineto", lambda: instead)
    found: Any = gpu._recorder(Flush(library, *records))
    assert isinstance(found, cupti.Cupti) == proven
    assert (found is instead) != proven


def test_torchs_profiler_stands_in_where_cupti_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded() -> Any:
        raise OSError("no such file")

    instead = SimpleNamespace(warm=lambda launch: launch())
    monkeypatch.setattr(cupti, "_loaded", loaded)
    monkeypatch.setattr(kineto, "Kineto", lambda: instead)
    assert gpu._recorder(Flush(Library())) is instead


@pytest.fixture
def unprofiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "_profiled", [])


@pytest.mark.usefixtures("unprofiled")
def test_once_torchs_profiler_was_used_records_come_through_it(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has CUPTI count in ticks of the processor, for good."""
    import torch

    instead = SimpleNamespace(warm=lambda launch: launch())
    monkeypatch.setattr(kineto, "Kineto", lambda: instead)
    device: Any = gpu.Gpu.__new__(gpu.Gpu)
    device._recorder, device._flushes = None, {"cold": Flush(library, whole)}
    first = device.recorder
    assert isinstance(first, cupti.Cupti)
    assert device.recorder is first
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.zeros(3)
    assert first.disturbed
    assert device.recorder is instead
