"""GPU activity records: what really ran on the device, and which timed call it belongs to.

Records come from CUPTI through torch's profiler. Every timed call is preceded by our own flush and mark kernels, whose
names carry a token that no solution uses by accident. Records are put in the order of their correlation ids, which is
the order in which the host launched them, whatever stream they ran on: what follows a mark and comes before the next
flush (or pause, where inputs are being restored) belongs to that call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ON_THE_HOST = frozenset(("cuda_runtime", "cuda_driver"))
ON_THE_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))


class Record(NamedTuple):
    """One kernel, copy or fill on the device. A tuple: thousands are made in the time that a row may take."""

    name: str
    start_ns: int
    end_ns: int
    stream: int
    correlation: int
    graph: bool = False
    """Launched as part of a CUDA graph."""

    @property
    def us(self) -> float:
        return (self.end_ns - self.start_ns) / 1000


@dataclass(frozen=True)
class Activity:
    """Everything that one call put on the device."""

    records: tuple[Record, ...] = field(default=())
    home: int | None = None
    """The stream that the call was made on."""

    @property
    def busy_us(self) -> float:
        """Length of the union of the records' intervals: what the call kept the device busy."""
        total, reached = 0, 0
        for record in sorted(self.records, key=lambda item: item.start_ns):
            total += max(0, record.end_ns - max(record.start_ns, reached))
            reached = max(reached, record.end_ns)
        return total / 1000

    @property
    def span_us(self) -> float:
        """From the first start to the last end."""
        if not self.records:
            return 0.0
        return (max(item.end_ns for item in self.records) - min(item.start_ns for item in self.records)) / 1000

    @property
    def gap_us(self) -> float:
        return self.span_us - self.busy_us

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(record.name for record in self.records)

    @property
    def streams(self) -> frozenset[int]:
        return frozenset(record.stream for record in self.records)


@dataclass(frozen=True)
class Names:
    """What our own kernels are called in this worker."""

    flush: str
    mark: str
    pause: str


class LostRecords(Exception):
    """The records do not add up to the calls that were made: nothing can be said about them."""


def attribute(records: Iterable[Record], names: Names, calls: int) -> list[Activity]:
    """One Activity per call, in the order of the calls."""
    found: list[tuple[int, list[Record]]] = []
    inside = False
    for record in sorted(records, key=lambda item: (item.correlation, item.start_ns)):
        if record.name == names.mark:
            found.append((record.stream, []))
            inside = True
        elif record.name in (names.flush, names.pause):
            inside = False
        elif inside:
            found[-1][1].append(record)
    if len(found) != calls:
        raise LostRecords(f"{calls} calls left {len(found)} marks in the activity records")
    return [Activity(tuple(item), home) for home, item in found]


class Recorder:
    """Takes activity records between `start` and `stop`; the first start in a process is the slow one."""

    def __init__(self) -> None:
        from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler
        from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig

        options = (False, False, False, False, False)
        self._config = ProfilerConfig(ProfilerState.KINETO, *options, _ExperimentalConfig())
        self._everything = self._device_alone = {ProfilerActivity.CUDA}
        # kernels, copies and fills with the launches of another kind of device, of which there are none here
        self._other = {getattr(ProfilerActivity, "XPU", ProfilerActivity.CUDA)}
        self._prepare, self._enable, self._disable = _prepare_profiler, _enable_profiler, _disable_profiler

    def warm(self, launch: Callable[[], Any]) -> None:
        """The slow first start; and whether the device's records can be had without the host's, which cost as much.

        `launch` puts something on the device and waits for it.
        """
        self.start()
        self.stop()
        with contextlib.suppress(RuntimeError):
            self._begin(self._other)
            try:
                launch()
            finally:
                records = self.stop()
            if any(record.correlation for record in records):
                self._device_alone = self._other

    def start(self, host_too: bool = True) -> None:
        self._begin(self._everything if host_too else self._device_alone)

    def _begin(self, activities: set[Any]) -> None:
        self._prepare(self._config, activities)
        self._enable(self._config, activities)

    def stop(self) -> list[Record]:
        """To be called when the device has finished; hands over what it did."""
        return read(self._disable().events())


def read(events: Sequence[Any]) -> list[Record]:
    """The device's records among the profiler's events."""
    from torch._C._autograd import DeviceType

    graphs, found, says_kind = set(), [], bool(events) and hasattr(events[0], "activity_type")
    for item in events:
        # a word: comparing torch's DeviceType costs three times as much
        kind = item.activity_type() if says_kind else ""
        if kind in ON_THE_DEVICE or (kind not in ON_THE_HOST and item.device_type() == DeviceType.CUDA):
            found.append(item)
        elif "GraphLaunch" in item.name():
            graphs.add(item.correlation_id())
    return [_record(item, item.correlation_id(), graphs) for item in found]


def _record(item: Any, number: int, graphs: set[int]) -> Record:
    return Record(item.name(), item.start_ns(), item.end_ns(), item.device_resource_id(), number, number in graphs)
