"""Clocks: each measures a list of calls, each with an untimed preparation and a timed part.

DeviceClock is the main clock on a GPU: the union of a call's busy intervals on the device, from activity records; each
call follows a flush. EventClock is its labeled fallback. WallClock is host time, the main clock on a CPU; for host time
on a GPU see wall_pass.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from harness.device.activity import Activity, LostRecords, Recorder, attribute
from harness.device.flush import Flush
from harness.device.gpu import Gpu, reset_persisting_l2
from harness.shared.results import ClockName

now = time.perf_counter_ns  # saved before any user code can replace it
HEAD_START_CYCLES = 200_000
"""Event pairs: the GPU spins this long before a flush, so that the host has launched the call when the flush ends."""
MARGIN_US = 16.0
"""A flush outlasts the host time of nearly all calls by this much, because launches reach the GPU some microseconds
late. On an H200, a side that took 10 to 30 us longer to launch was called 2 to 3% faster without it, up to 2% with
8 us, and 0.3% with 16 us (tests/measure/measure_launch.py)."""
WITH_LAUNCHES = 2
"""Batches that also record the host's launches, if the recorder cannot detect CUDA graphs otherwise: the warm-up, whose
records are discarded, and the first batch. A graph first used after some twenty calls, more with the checks, goes
unnoticed."""


class Unsteady(Exception):
    """The GPU was throttled during timing; the message is the reason."""


class Call(NamedTuple):
    prepare: Callable[[], None] | None
    run: Callable[[], Any]
    side: str = ""
    beside: str = ""
    """The side that this one alternates with, if sides alternate in pairs."""
    after: Callable[[Any], None] | None = None
    """Gets the result, outside of the timed span, before it is let go."""


class Measured(NamedTuple):
    us: float
    activity: Activity | None = None


class Clock(Protocol):
    name: ClockName
    batch: int
    """Blocks measured in one batch."""
    extra_us: float
    """Cost of a call beyond its time: flush and launches. Only for planning."""

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
            start, result, end = now(), run(), now()  # in no variable during the call, which could change it
            if call.after is not None:
                call.after(result)
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
        """Host time of nearly all calls by side, as far as known."""
        self._batches = 0

    def measure(self, calls: Sequence[Call]) -> list[Measured]:
        reset_persisting_l2()
        before = self._gpu.nvml.state()
        laps = {about: self._laps(*about) for about in {(call.side, call.beside) for call in calls}}
        self._recorder.start(host_too=self._batches < WITH_LAUNCHES)
        try:
            self._launch(calls, laps)
            self._synchronize()
        except BaseException:
            with contextlib.suppress(LostRecords):  # the first exception matters more
                self._recorder.stop()
            raise
        records = self._recorder.stop()
        reasons = {*before.throttled, *self._gpu.nvml.state().throttled}
        if reasons:
            raise Unsteady(", ".join(sorted(reasons)))
        self._batches += 1
        pauses = sum((call.prepare is not None) + (call.after is not None) for call in calls)
        found = attribute(records, self._flush.names, len(calls), pauses)
        return [Measured(item.busy_us, item) for item in found]

    def _laps(self, side: str, beside: str) -> float:
        """The same flush length before both alternating sides, for the one that is slower to launch."""
        return self._flush.laps(max(self._host_us.get(side, 0.0), self._host_us.get(beside, 0.0)) + MARGIN_US)

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
            if call.after is not None:
                flush.pause()
                call.after(result)
            del result  # before the next call allocates, so that it gets the same address
        for about, times in took.items():
            self._learn(about[0], _nearly_all(times), laps[about])

    def _learn(self, side: str, us: float, laps: float) -> None:
        """After a longer flush, learns only shorter times: a call that waits for the GPU takes longer with every
        additional lap."""
        if laps == 1.0 or us < self._host_us.get(side, 0.0):
            self._host_us[side] = us


def _nearly_all(times: Sequence[float]) -> float:
    """The 90th percentile; of fewer than ten times the shortest, because the first call may have compiled something."""
    ordered = sorted(times)
    return ordered[len(ordered) * 9 // 10] if len(ordered) >= 10 else ordered[0]


class EventClock:
    """CUDA event pairs after the same flush; each pair adds a few microseconds."""

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
            result = call.run()
            end.record()
            if call.after is not None:
                call.after(result)
            del result
            pairs.append((start, end))
        self._torch.cuda.synchronize()
        return [Measured(start.elapsed_time(end) * 1000) for start, end in pairs]
