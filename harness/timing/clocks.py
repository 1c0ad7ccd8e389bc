"""Clocks: each measures a list of calls, every one with an untimed preparation and a timed part.

DeviceClock is the headline on a GPU: the union of what a call kept busy on the device, from activity records, each call
after a flush. EventClock is its labelled fallback. WallClock is host time, the headline on a CPU; for a GPU see
wallpass.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from harness.device.activity import Activity, LostRecords, Recorder, attribute
from harness.device.flush import Flush
from harness.device.gpu import Gpu
from harness.shared.results import ClockName

now = time.perf_counter_ns  # taken before any user code can replace it
HEAD_START_CYCLES = 200_000
"""Event pairs: the GPU waits this long before a flush; the host has then launched the call when the flush is over."""
WITH_LAUNCHES = 2
"""Batches in which the host's launches are recorded too, where the recorder can tell CUDA graphs by nothing else: the
warm-up, of which no record is kept, and the first one. A graph that is first used after some twenty calls, more with
the checks, then goes unnoticed."""


class Unsteady(Exception):
    """The GPU was throttled while it was timed; the reason in words."""


class Call(NamedTuple):
    prepare: Callable[[], None] | None
    run: Callable[[], Any]
    side: str = ""
    beside: str = ""
    """The side that it takes turns with, where it is two that do."""


class Measured(NamedTuple):
    us: float
    activity: Activity | None = None


class Clock(Protocol):
    name: ClockName
    batch: int
    """Blocks that are measured at one go."""
    extra_us: float
    """What a call costs beyond its own time: flush and launches. Only for planning."""

    def measure(self, calls: Sequence[Call]) -> list[Measured]: ...


class WallClock:
    """Host time of one call."""

    name: ClockName = "wall"
    batch = 1
    extra_us = 0.0

    def measure(self, calls: Sequence[Call]) -> list[Measured]:
        times: list[Measured] = []
        for call in calls:
            if call.prepare is not None:
                call.prepare()
            run = call.run
            start = now()
            result = run()
            end = now()
            del result  # freed outside the timed span, before the next call allocates
            times.append(Measured((end - start) / 1000))
        return times


class DeviceClock:
    """Busy time on the device, from activity records."""

    name: ClockName = "device"
    batch = 8
    extra_us = 90.0

    def __init__(self, gpu: Gpu, flush: Flush, recorder: Recorder) -> None:
        import torch

        self._gpu, self._flush, self._recorder = gpu, flush, recorder
        self._synchronize = torch.cuda.synchronize
        self._host_us: dict[str, float] = {}
        """What nearly all of a side's calls take the host, as far as is known."""
        self._batches = 0

    def measure(self, calls: Sequence[Call]) -> list[Measured]:
        before = self._gpu.nvml.state()
        laps = {about: self._laps(*about) for about in {(call.side, call.beside) for call in calls}}
        self._recorder.start(host_too=self._batches < WITH_LAUNCHES)
        try:
            self._launch(calls, laps)
            self._synchronize()
        except BaseException:
            with contextlib.suppress(LostRecords):  # what was raised matters more
                self._recorder.stop()
            raise
        records = self._recorder.stop()
        reasons = {*before.throttled, *self._gpu.nvml.state().throttled}
        if reasons:
            raise Unsteady(", ".join(sorted(reasons)))
        self._batches += 1
        return [Measured(item.busy_us, item) for item in attribute(records, self._flush.names, len(calls))]

    def _laps(self, side: str, beside: str) -> float:
        """The same before both that take turns, for the one that is slower to launch."""
        return self._flush.laps(max(self._host_us.get(side, 0.0), self._host_us.get(beside, 0.0)))

    def _launch(self, calls: Sequence[Call], laps: dict[tuple[str, str], float]) -> None:
        flush = self._flush
        took: dict[tuple[str, str], list[float]] = {about: [] for about in laps}
        for call in calls:
            if call.prepare is not None:
                flush.pause()
                call.prepare()
            about = call.side, call.beside
            flush(laps[about])
            begin = now()
            result = call.run()
            took[about].append((now() - begin) / 1000)
            del result  # before the next call allocates: it then gets the same address
        for about, times in took.items():
            self._learn(about[0], _nearly_all(times), laps[about])

    def _learn(self, side: str, us: float, laps: float) -> None:
        """After a longer flush only what is shorter than was thought: a call that waits for the GPU takes longer with
        every lap more."""
        if laps == 1.0 or us < self._host_us.get(side, 0.0):
            self._host_us[side] = us


def _nearly_all(times: Sequence[float]) -> float:
    """Nine in ten take no longer; of a few, the first of which may have built something, the shortest is taken."""
    ordered = sorted(times)
    return ordered[len(ordered) * 9 // 10] if len(ordered) >= 10 else ordered[0]


class EventClock:
    """CUDA event pairs after the same flush; each adds a few microseconds of its own."""

    name: ClockName = "events"
    batch = 4
    extra_us = 200.0

    def __init__(self, flush: Flush) -> None:
        import torch

        from harness.private import torch_private

        self._torch: Any = torch
        self._flush, self._spin = flush, torch_private.spin()

    def measure(self, calls: Sequence[Call]) -> list[Measured]:
        event: Any = self._torch.cuda.Event
        pairs = []
        for call in calls:
            if call.prepare is not None:
                call.prepare()
            self._spin(HEAD_START_CYCLES)
            self._flush()
            start, end = event(enable_timing=True), event(enable_timing=True)
            start.record()
            call.run()
            end.record()
            pairs.append((start, end))
        self._torch.cuda.synchronize()
        return [Measured(start.elapsed_time(end) * 1000) for start, end in pairs]
