"""What CUPTI says of launches on a real GPU, beside torch's profiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl

from harness.device import cupti
from harness.device.activity import Record, Recorder
from harness.device.gpu import Gpu
from harness.device.kineto import Kineto
from harness.timing import clocks, kernel_ledger, wall_pass

pytestmark = pytest.mark.gpu


@triton.jit
def dependent(x, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.extra.cuda.gdc_wait()
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + place, 1.0)


@pytest.fixture(scope="module")
def device() -> Gpu:
    return Gpu("cuda:0")


def launches() -> Callable[[], None]:
    """Kernels, a copy, a fill, a graph, and another stream."""
    import torch

    x, y, other = (torch.randn(1 << 20, device="cuda") for _ in range(3))
    graph: Any = torch.cuda.CUDAGraph()
    torch.relu(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        torch.add(x, y, out=other)
    stream: Any = torch.cuda.Stream()

    def launch() -> None:
        torch.relu(x)
        x.copy_(y)
        x.zero_()
        graph.replay()
        with torch.cuda.stream(stream):
            torch.sigmoid(y)
        torch.cuda.synchronize()

    return launch


def told(recorder: Recorder, launch: Callable[[], None]) -> list[Record]:
    recorder.start(host_too=True)
    launch()
    return sorted(recorder.stop(), key=lambda record: (record.correlation, record.start_ns))


def test_cupti_tells_what_torchs_profiler_tells(device: Gpu) -> None:
    direct: Any = device.recorder
    assert isinstance(direct, cupti.Cupti)
    launch = launches()
    told(direct, launch)
    ours = told(direct, launch)  # before torch's profiler is used: it changes CUPTI's clock
    profiler = Kineto()
    profiler.warm(device.flush("cold").once)
    theirs = told(profiler, launch)
    assert len(ours) == len(theirs) == 5
    for own, other in zip(ours, theirs, strict=True):
        assert other.name.startswith(own.name)  # of copies and fills it says more
        assert (own.stream, own.graph) == (other.stream, other.graph)
        assert 0.6 < own.us / other.us < 1.6
    assert [record.graph for record in ours] == [False, False, False, True, False]
    assert len({record.stream for record in ours}) == 2
    assert [record.start_ns for record in ours] == sorted(record.start_ns for record in ours)


def test_more_records_than_a_buffer_holds_are_all_there() -> None:
    """Full buffers come back from a thread of CUPTI's while this one launches, and keeps the interpreter meanwhile."""
    import torch

    pool = cupti._buffers()
    pool.set_bytes(ctypes.c_size_t(64 << 10))
    recorder, x = cupti.Cupti(), torch.zeros(8, device="cuda")
    keeping: Any = ctypes.PyDLL("libcuda.so.1")  # does not let go of the interpreter, as pybind11 does not

    def launch() -> None:
        for _ in range(5000):
            keeping.cuMemsetD32Async(ctypes.c_uint64(x.data_ptr()), ctypes.c_uint(1), ctypes.c_size_t(8), None)
        torch.cuda.synchronize()

    try:
        found = told(recorder, launch)
    finally:
        pool.set_bytes(ctypes.c_size_t(4 << 20))
    assert len(found) == 5000
    assert {record.name for record in found} == {"Memset"}
    assert len({record.correlation for record in found}) == 5000


def test_a_kernel_that_may_start_before_its_predecessor_ends_does_not_start_in_the_flush(device: Gpu) -> None:
    import torch

    flush, recorder, x = device.flush("cold"), device.recorder, torch.zeros(1 << 14, device="cuda")

    def launch() -> None:
        for _ in range(20):
            flush()
            dependent[(16,)](x, BLOCK=1024, launch_pdl=True)
        torch.cuda.synchronize()

    launch()
    found = told(recorder, launch)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert len(pairs) == 20
    assert all(mark.name == flush.names.mark for mark, _ in pairs)
    assert all(own.start_ns >= mark.end_ns for mark, own in pairs)


def test_work_on_a_side_stream_is_waited_for_or_left() -> None:
    import torch

    x, side, other = torch.randn(4096, 4096, device="cuda"), torch.cuda.Stream(), torch.zeros(1, device="cuda")

    def left(joins: bool) -> tuple[list[float], list[float]]:
        return wall_pass.left_us(lambda: clocks.Call(None, lambda: run(joins)), pause)

    def pause() -> None:
        other.zero_()

    def run(joins: bool) -> torch.Tensor:
        with torch.cuda.stream(side):
            beside = x @ x
        if joins:
            torch.cuda.current_stream().wait_stream(side)
        return beside

    run(False)
    torch.cuda.synchronize()
    assert min(left(joins=False)[0]) > 1000
    calls: Any = [SimpleNamespace(busy_us=1000.0)]
    assert kernel_ledger.unjoined(*left(joins=False), calls) is not None
    assert kernel_ledger.unjoined(*left(joins=True), calls) is None


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("joins", [True, False])
def test_streams_forked_by_an_event_are_late_only_if_nothing_joins_them(count: int, joins: bool) -> None:
    import torch

    x, other = torch.zeros(1 << 10, device="cuda"), torch.zeros(1, device="cuda")
    sides, forked = [torch.cuda.Stream() for _ in range(count)], torch.cuda.Event()

    def run() -> torch.Tensor:
        here = torch.cuda.current_stream()
        forked.record(here)
        for side in sides:
            side.wait_event(forked)
            with torch.cuda.stream(side):
                torch.cuda._sleep(400_000)  # far longer than a wait for an idle GPU ever takes
            if joins:
                here.wait_event(side.record_event())
        return x

    calls: Any = [SimpleNamespace(busy_us=200.0)]
    late = [wall_pass.left_us(lambda: clocks.Call(None, run), lambda: other.zero_()) for _ in range(10)]  # type: ignore[arg-type, return-value]
    found = [kernel_ledger.unjoined(*figures, calls) is not None for figures in late]
    assert found == [not joins] * 10, late
