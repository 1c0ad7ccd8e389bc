"""The device clock without a device: how long the flush before a call has to be."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device import flush
from harness.device.activity import Names, Record
from harness.timing import clocks


class Flush:
    """Remembers how many laps it was asked for; a lap takes 32 us."""

    names = Names("mark", "pause")

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self, laps: float) -> None:
        self.asked.append(laps)

    def laps(self, us: float) -> float:
        return flush.laps(us, 32.0)

    def pause(self) -> None: ...


class Recorder:
    def __init__(self, flush: Flush) -> None:
        self.flush = flush
        self.seen = 0
        self.started: list[bool] = []
        """Whether the host's records were asked for."""

    def start(self, host_too: bool = True) -> None:
        self.started.append(host_too)
        self.seen = len(self.flush.asked)

    def stop(self) -> list[Record]:
        calls = range(self.seen, len(self.flush.asked))
        return [Record(name, 0, 2000, 7, 2 * call + at) for call in calls for at, name in enumerate(("mark", "kernel"))]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> tuple[clocks.DeviceClock, Flush, Callable[[float], Callable[[], None]]]:
    now = 0

    def taking(us: float) -> Callable[[], None]:
        def call() -> None:
            nonlocal now
            now += int(us * 1000)

        return call

    monkeypatch.setattr(clocks, "now", lambda: now)
    nvml: Any = SimpleNamespace(state=lambda: SimpleNamespace(throttled=()))
    fake = Flush()
    made: Any = clocks.DeviceClock(SimpleNamespace(nvml=nvml), fake, Recorder(fake))  # type: ignore[arg-type]
    made._synchronize = lambda: None
    return made, fake, taking


def test_the_flush_lasts_as_long_as_the_host_takes_to_launch_the_slowest_side(clock: Any) -> None:
    """Otherwise the GPU is idle when the call of a side that is slow to launch begins, and that is shorter then; and as
    long before every side, since what it leaves behind depends on its length."""
    device, flush, taking = clock
    calls = [
        clocks.Call(None, taking(10.0), "solution", "baseline"),
        clocks.Call(None, taking(60.0), "baseline", "solution"),
        clocks.Call(None, taking(10.0), "solution", "best"),
    ]
    device.measure(calls * 10)
    assert set(flush.asked) == {1.0}  # nothing is known yet
    del flush.asked[:]
    device.measure(calls)
    assert flush.asked == [2.5, 2.5, 1.0]  # a lap is 32 us, and the margin half of that


def test_a_call_that_builds_something_does_not_count(clock: Any) -> None:
    device, flush, taking = clock
    device.measure([clocks.Call(None, taking(us), "solution") for us in (5e6, 10.0)])
    device.measure([clocks.Call(None, taking(10.0), "solution")])
    assert flush.asked[-1] == 1.0


def test_a_call_that_waits_for_the_gpu_is_not_waited_for_longer_and_longer(clock: Any) -> None:
    device, flush, taking = clock
    for _ in range(6):
        waiting = taking(32.0 * (flush.asked[-1] if flush.asked else 1.0) + 5.0)
        device.measure([clocks.Call(None, waiting, "solution")])
    assert max(flush.asked) == 1.75


def test_a_slow_beginning_is_forgotten(clock: Any) -> None:
    device, flush, taking = clock
    device.measure([clocks.Call(None, taking(60.0), "solution")] * 4)
    device.measure([clocks.Call(None, taking(10.0), "solution")] * 20)
    device.measure([clocks.Call(None, taking(10.0), "solution")])
    assert flush.asked[4:24] == [2.5] * 20
    assert flush.asked[-1] == 1.0


def test_launches_are_recorded_until_graphs_would_have_been_seen(clock: Any) -> None:
    device, _flush, taking = clock
    for _ in range(4):
        device.measure([clocks.Call(None, taking(10.0), "solution")])
    assert device._recorder.started == [True, True, False, False]


def test_a_batch_that_is_dropped_tells_of_no_graph(clock: Any) -> None:
    device, _flush, taking = clock
    calls = [clocks.Call(None, taking(10.0), "solution")]
    device.measure(calls)
    steady, device._gpu = (
        device._gpu,
        SimpleNamespace(nvml=SimpleNamespace(state=lambda: SimpleNamespace(throttled=("hardware thermal",)))),
    )
    with pytest.raises(clocks.Unsteady):
        device.measure(calls)
    device._gpu = steady
    device.measure(calls)
    assert device._recorder.started == [True, True, True]


@pytest.mark.parametrize(
    ("us", "expected"), [(0.0, 1.0), (32.0, 1.0), (33.0, 1.25), (64.0, 2.0), (1e6, flush.MOST_LAPS)]
)
def test_laps_come_in_quarters(us: float, expected: float) -> None:
    assert flush.laps(us, 32.0) == expected
