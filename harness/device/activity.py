"""GPU activity records: what really ran on the device, and which timed call it belongs to.

Records come from CUPTI (cupti.py), or through torch's profiler (kineto.py). Every timed call is preceded by a kernel of
our own, the mark, whose name carries a token that no solution uses by accident. Records are put in the order of their
correlation ids, which is the order in which the host launched them, whatever stream they ran on: what follows a mark
and comes before the next (or before a pause, where inputs are being restored) belongs to that call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

WRAPPED = 1 << 31
"""Correlation ids have 32 bits."""


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
    def names(self) -> tuple[str, ...]:
        return tuple(record.name for record in self.records)

    @property
    def streams(self) -> frozenset[int]:
        return frozenset(record.stream for record in self.records)


@dataclass(frozen=True)
class Names:
    """What our own kernels are called in this worker."""

    mark: str
    """The flush, or what stands in for it where nothing is flushed."""
    pause: str


class LostRecords(Exception):
    """The records do not add up to the calls that were made: nothing can be said about them."""


def attribute(records: Iterable[Record], names: Names, calls: int) -> list[Activity]:
    """One Activity per call, in the order of the calls."""
    found: list[tuple[int, list[Record]]] = []
    inside, ordered = False, sorted(records, key=lambda item: (item.correlation, item.start_ns))
    if ordered and ordered[-1].correlation - ordered[0].correlation > WRAPPED:
        raise LostRecords("the numbers of the launches began anew")
    for record in ordered:
        if record.name == names.mark:
            found.append((record.stream, []))
            inside = True
        elif record.name == names.pause:
            inside = False
        elif inside:
            found[-1][1].append(record)
    if len(found) != calls:
        raise LostRecords(f"{calls} calls left {len(found)} marks in the activity records")
    return [Activity(tuple(item), home) for home, item in found]


class Recorder(Protocol):
    """Takes activity records."""

    def start(self, host_too: bool) -> None:
        """Raises LostRecords where there will be none. Some can tell graphs only by the host's own records."""

    def stop(self) -> list[Record]:
        """To be called when the device has finished; hands over what it did, or raises LostRecords."""
