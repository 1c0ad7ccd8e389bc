"""Activity records through torch's profiler: the fallback if CUPTI cannot be used directly (cupti.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from harness.device.activity import Record
from harness.private import torch_private

ON_THE_HOST = frozenset(("cuda_runtime", "cuda_driver"))
ON_THE_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))


class Kineto:
    """Collects activity records between `start` and `stop`; the first start in a process is slow."""

    def __init__(self) -> None:
        found = torch_private.profiler()
        self._config, kinds = found.config, found.activities
        self._everything = self._device_alone = {kinds.CUDA}
        # records kernels, copies and fills, plus the launches of another device type, which is absent here
        self._other = {getattr(kinds, "XPU", kinds.CUDA)}
        self._prepare, self._enable, self._disable = found.prepare, found.enable, found.disable

    def warm(self, launch: Callable[[], Any]) -> None:
        """Does the slow first start, and tests whether the device's records come without the host's, which cost time.

        `launch` runs something on the device and waits for it.
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
        """Returns the records. Call it after the device has finished."""
        return read(self._disable().events())


def read(events: Sequence[Any]) -> list[Record]:
    """The device's records among the profiler's events."""
    on_cuda = torch_private.is_cuda_type()
    graphs, found, says_kind = set(), [], bool(events) and hasattr(events[0], "activity_type")
    for item in events:
        # a string: comparing torch's DeviceType costs three times as much
        kind = item.activity_type() if says_kind else ""
        if kind in ON_THE_DEVICE or (kind not in ON_THE_HOST and on_cuda(item.device_type())):
            found.append(item)
        elif "GraphLaunch" in item.name():
            graphs.add(item.correlation_id())
    return [_record(item, item.correlation_id(), graphs) for item in found]


def _record(item: Any, number: int, graphs: set[int]) -> Record:
    return Record(item.name(), item.start_ns(), item.end_ns(), item.device_resource_id(), number, number in graphs)
