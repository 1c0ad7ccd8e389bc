"""Records read from CUPTI's buffers, with a library that fills them as the real one does."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device import cupti, gpu, kineto
from harness.device.activity import LostRecords, Names, Record

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


def kernel(name: bytes, start: int, end: int, stream: int, number: int, graph: int = 0, shared: int = 0) -> bytes:
    text = ctypes.c_char_p(name)
    KEPT.append(text)
    place = ctypes.cast(text, ctypes.c_void_p).value
    assert place is not None
    fields = {16: ("Q", start), 24: ("Q", end), 48: ("I", stream), 92: ("I", number), 104: ("Q", place)}
    shape = {52 + 4 * index: ("i", size) for index, size in enumerate((66, 2, 1, 256, 1, 1, 16, shared))}
    return packed(cupti.KERNEL, {**fields, **shape, 156: ("I", graph)})


def moved(kind: int, way: int, start: int, end: int, stream: int, number: int, graph: int = 0) -> bytes:
    fields = {4: ("B", way), 16: ("Q", start), 24: ("Q", end), 40: ("I", stream), 44: ("I", number)}
    return packed(kind, {**fields, 72: ("I", graph)})


KEPT: list[Any] = []


def launch(shared: int = 0) -> bytes:
    """Of `kernel`, as a record has it."""
    return struct.pack("<8i", 66, 2, 1, 256, 1, 1, 16, shared)


class Library:
    """What is launched while records are taken comes back in buffers when it is asked to flush."""

    def __init__(self, version: int = 26) -> None:
        self.version = version
        self.pending: list[bytes] = []
        self.foreign: list[Any] = []
        """Buffers that somebody else had given it."""
        self.on: set[int] = set()
        self.refuses: set[Any] = set()
        self.ends_with = cupti.NO_MORE
        self.dropped = 0
        self._callbacks: tuple[Any, Any] | None = None

    def cuptiGetVersion(self, place: Any) -> int:
        place._obj.value = self.version
        return 0

    def cuptiActivityRegisterCallbacks(self, *callbacks: Any) -> int:
        self._callbacks = callbacks  # type: ignore[assignment]
        return REFUSED if "buffers" in self.refuses else 0

    def cuptiActivityEnable(self, kind: int) -> int:
        if kind in self.refuses:
            return REFUSED
        self.on.add(kind)
        return 0

    def cuptiActivityDisable(self, kind: int) -> int:
        self.on.discard(kind)
        return 0

    def cuptiActivityGetNumDroppedRecords(self, _context: None, _stream: int, place: Any) -> int:
        place._obj.value, self.dropped = self.dropped, 0
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:
        assert flag == cupti.FORCED
        if self._callbacks is None:
            return 0
        request, complete = self._callbacks
        for other in self.foreign:
            complete(None, 0, other, ctypes.c_size_t(len(other)), ctypes.c_size_t(len(other)))
        self.foreign.clear()
        while self.pending:
            buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
            request(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
            assert most.value == 0
            if buffer.value is None:
                self.dropped += len(self.pending)
                self.pending.clear()
                break
            data = b""
            while self.pending and len(data) + len(self.pending[0]) <= size.value:
                data += self.pending.pop(0)
            ctypes.memmove(buffer.value, data, len(data))
            complete(None, 0, buffer, size, ctypes.c_size_t(len(data)))
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, where: Any) -> int:
        record = where._obj
        last = record.value
        following = buffer.value if last is None else last + SIZES[ctypes.c_uint8.from_address(last).value]
        if following >= buffer.value + valid.value:
            return self.ends_with
        record.value = following
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(cupti, "_loaded", lambda: made)
    monkeypatch.setattr(cupti, "_profiled", [])
    with buffers_of(1 << 14):
        yield made


@contextmanager
def buffers_of(size: int) -> Iterator[Any]:
    """The pool is the process's own."""
    pool = cupti._buffers()
    pool.set_bytes(ctypes.c_size_t(size))
    yield pool
    pool.set_bytes(ctypes.c_size_t(4 << 20))


def test_kernels_copies_and_fills_are_read_and_nothing_else(library: Library) -> None:
    recorder = cupti.Cupti()
    recorder.start()
    assert library.on == {cupti.KERNEL, cupti.COPY, cupti.FILL}
    begin = 1_700_000_000_000_000_000
    library.pending = [
        kernel(b"own", begin, begin + 512, 7, 40, shared=4096),
        kernel(b"_ZN2at6native6kernelIfEEvPT_", begin + 600, begin + 700, 13, 41, graph=3),
        packed(37, {}),
        moved(cupti.COPY, 8, 5, 9, 7, 42),
        moved(cupti.COPY, 99, 5, 9, 7, 43),
        moved(cupti.FILL, 0, 10, 12, 7, 44, graph=1),
    ]
    assert recorder.stop() == [
        Record("own", begin, begin + 512, 7, 40, launch=launch(4096)),
        Record("void at::native::kernel<float>(float*)", begin + 600, begin + 700, 13, 41, graph=True, launch=launch()),
        Record("Memcpy DtoD", 5, 9, 7, 42),
        Record("Memcpy of another kind", 5, 9, 7, 43),
        Record("Memset", 10, 12, 7, 44, graph=True),
    ]
    assert library.on == set()


def test_buffers_are_used_again_and_a_batch_may_take_several(library: Library) -> None:
    recorder = cupti.Cupti()
    with buffers_of(2 * SIZES[cupti.KERNEL]) as pool:
        for turn in range(3):
            recorder.start()
            library.pending = [kernel(b"own", at, at + 1, 7, at) for at in range(1, 6)]
            assert sorted(record.correlation for record in recorder.stop()) == [1, 2, 3, 4, 5]
            if not turn:
                made = pool.count()
        assert pool.count() == made


def test_more_than_all_buffers_hold_is_not_told_as_less(library: Library) -> None:
    recorder = cupti.Cupti()
    with buffers_of(SIZES[cupti.KERNEL]) as pool:
        for _ in range(2):
            recorder.start()
            library.pending = [kernel(b"own", at, at + 1, 7, at) for at in range(1, 200)]
            with pytest.raises(LostRecords, match=r"dropped \d+ records"):
                recorder.stop()
        assert pool.count() == 64
    recorder.start()  # with buffers of another size
    library.pending = [kernel(b"own", 1, 2, 7, 1)]
    assert len(recorder.stop()) == 1


def test_what_came_after_a_stop_is_not_the_next_batchs(library: Library) -> None:
    recorder = cupti.Cupti()
    recorder.start()
    recorder.stop()
    library.pending, library.dropped = [kernel(b"late", 1, 2, 7, 1)], 3
    library.cuptiActivityFlushAll(cupti.FORCED)
    recorder.start()
    library.pending = [kernel(b"own", 3, 4, 7, 2)]
    assert [record.name for record in recorder.stop()] == ["own"]


def test_buffers_that_another_left_in_cupti_are_not_touched(library: Library) -> None:
    recorder = cupti.Cupti()
    recorder.start()
    other = kernel(b"theirs", 1, 2, 7, 1)
    library.foreign = [ctypes.create_string_buffer(other, len(other))]
    library.pending = [kernel(b"own", 3, 4, 7, 2)]
    assert [record.name for record in recorder.stop()] == ["own"]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (kernel(b"own", 0, 0, 7, 1), "recorded no valid times for own"),  # no memory was left on the device for it
        (kernel(b"own", 5, 0, 7, 1), "recorded no valid times for own"),
        (moved(cupti.COPY, 8, 0, 0, 7, 1), "recorded no valid times for Memcpy DtoD"),
        (packed(cupti.KERNEL, {16: ("Q", 1), 24: ("Q", 2), 104: ("Q", 0)}), "without a name"),
    ],
)
def test_a_record_that_tells_nothing_is_not_taken_for_a_short_one(library: Library, record: bytes, says: str) -> None:
    recorder = cupti.Cupti()
    recorder.start()
    library.pending = [kernel(b"own", 1, 2, 7, 1), record]
    with pytest.raises(LostRecords, match=says):
        recorder.stop()
    recorder.start()
    library.pending = [kernel(b"own", 1, 2, 7, 1)]
    assert len(recorder.stop()) == 1


def test_a_buffer_that_breaks_off_is_not_believed(library: Library) -> None:
    recorder = cupti.Cupti()
    recorder.start()
    library.pending, library.ends_with = [kernel(b"own", 1, 2, 7, 1)], 21
    with pytest.raises(LostRecords, match="ended with error 21"):
        recorder.stop()


@pytest.mark.parametrize("what", ["buffers", cupti.COPY])
def test_a_refusal_says_that_there_will_be_no_records_and_leaves_nothing_on(library: Library, what: Any) -> None:
    recorder = cupti.Cupti()
    library.refuses = {what}
    with pytest.raises(LostRecords, match="returned 15"):
        recorder.start()
    assert library.on == set()


def test_without_a_compiler_there_are_no_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(LostRecords, match="no C\\+\\+ compiler"):
        cupti._buffers.__wrapped__()


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


LAP_NS = 100_000


class Flush:
    """Puts two of a kind on the device, and says how long the second took by other means."""

    names = Names("mark", "pause")

    def __init__(self, library: Library, made: Callable[[int], list[bytes]]) -> None:
        self._library, self._made, self._number = library, made, 0

    def ready(self, laps: float) -> None: ...

    def once(self) -> None: ...

    def timed(self, laps: float) -> float:
        for _ in range(2):
            self._number += 1
            self._library.pending += self._made(self._number)
        return LAP_NS / 1000 + 5.0


def whole(number: int, times: float = 1.0, name: bytes = b"mark", stream: int = 7, graph: int = 5) -> list[bytes]:
    begin = number * 1_000_000
    return [kernel(name, begin, begin + int(times * LAP_NS), stream, number, graph=graph)]


@pytest.mark.parametrize(
    ("made", "proven"),
    [
        (whole, True),
        (lambda number: [], False),  # another has registered its own buffers meanwhile
        (lambda number: whole(number) * 2, False),
        (lambda number: whole(number, graph=0), False),  # is of a graph, and does not say so
        (lambda number: whole(number, name=b"other"), False),
        (lambda number: whole(number, stream=number), False),
        (lambda number: whole(number, times=2.1), False),  # in ticks of a processor
        (lambda number: whole(number, times=0.5), False),
    ],
)
def test_cupti_is_used_where_it_tells_what_was_launched(
    library: Library, monkeypatch: pytest.MonkeyPatch, made: Callable[[int], list[bytes]], proven: bool
) -> None:
    instead = SimpleNamespace(warm=lambda launch: launch())
    monkeypatch.setattr(kineto, "Kineto", lambda: instead)
    found: Any = gpu._recorder(Flush(library, made))
    assert isinstance(found, cupti.Cupti) == proven
    assert (found is instead) != proven


def test_torchs_profiler_stands_in_where_cupti_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loaded() -> Any:
        raise OSError("no such file")

    instead = SimpleNamespace(warm=lambda launch: launch())
    monkeypatch.setattr(cupti, "_loaded", loaded)
    monkeypatch.setattr(kineto, "Kineto", lambda: instead)
    assert gpu._recorder(Flush(Library(), whole)) is instead
    assert capsys.readouterr().out.endswith("which is slower: no such file\n")


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
    first.start()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.zeros(3)
    with pytest.raises(LostRecords, match="changed CUPTI's clock"):
        first.stop()
    assert device.recorder is instead
    assert gpu._recorder(Flush(library, whole)) is instead
