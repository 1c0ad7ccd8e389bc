"""What CUPTI says of launches on a real GPU, beside torch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness import cupti
from harness.activity import Record, Recorder
from harness.gpu import Gpu
from harness.kineto import Kineto

pytestmark = pytest.mark.gpu


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
    launch, profiler = launches(), Kineto()
    profiler.warm(device.flush("cold").once)
    for _ in range(2):  # each after the other
        ours, theirs = told(direct, launch), told(profiler, launch)
        assert len(ours) == len(theirs) == 5
        for own, other in zip(ours, theirs, strict=True):
            assert other.name.startswith(own.name)  # of copies and fills it says more
            assert (own.stream, own.graph) == (other.stream, other.graph)
            assert 0.3 < own.us < 100
        assert [record.graph for record in ours] == [False, False, False, True, False]
        assert len({record.stream for record in ours}) == 2
        assert [record.start_ns for record in ours] == sorted(record.start_ns for record in ours)


def test_more_records_than_a_buffer_holds_are_all_there(device: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full buffers come back from a thread of CUPTI's while this one launches."""
    import torch

    monkeypatch.setattr(cupti, "BUFFER_BYTES", 64 << 10)
    recorder, x = cupti.Cupti(), torch.zeros(8, device="cuda")

    def launch() -> None:
        for _ in range(5000):
            x.add_(1)
        torch.cuda.synchronize()

    found = told(recorder, launch)
    assert len(found) == 5000
    assert len({record.correlation for record in found}) == 5000
    assert len(recorder._buffers) > 1
