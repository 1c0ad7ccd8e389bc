"""GPU activity records: what really ran on the device, and which timed call it belongs to.

Records come from CUPTI (cupti.py) or from torch's profiler (kineto.py). Every timed call is preceded by one of
kernbench's own kernels, the mark, whose name contains a token that no solution uses by accident. Records are sorted by
correlation id, which is the order in which the host launched them, on any stream: everything between a mark and the
next mark (or a pause, during which inputs are restored) belongs to that call. Marks and pauses are counted: with one
more, a source could end a call's records early.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from harness.shared import format as fmt

WRAPPED = 1 << 31
"""Correlation ids have 32 bits."""


class Record(NamedTuple):
    """One kernel, copy or fill on the device. A tuple for speed: a row creates thousands."""

    name: str
    start_ns: int
    end_ns: int
    stream: int
    correlation: int
    graph: bool = False
    """Launched as part of a CUDA graph."""
    launch: bytes = b""
    """Of a kernel, if CUPTI reported it: grid, block, static and dynamic shared memory, as eight integers."""

    @property
    def us(self) -> float:
        return (self.end_ns - self.start_ns) / 1000


@dataclass(frozen=True)
class Activity:
    """Everything that one call ran on the device."""

    records: tuple[Record, ...] = field(default=())
    home: int | None = None
    """The stream on which the call was made."""
    next_ns: int | None = None
    """When the next mark or pause began on that stream; None after the last call of a batch."""

    @property
    def busy_us(self) -> float:
        """Length of the union of the records' intervals: how long the call kept the device busy."""
        if len(self.records) == 1:  # nearly always
            return max(0, self.records[0].end_ns - self.records[0].start_ns) / 1000
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
    def late_us(self) -> float:
        """How long work on other streams, whose end was not awaited, still ran when the next mark or pause began."""
        if self.next_ns is None:
            return 0.0
        others = (record for record in self.records if record.stream != self.home)
        late = tuple(
            record._replace(start_ns=max(record.start_ns, self.next_ns))
            for record in others
            if record.end_ns > self.next_ns
        )
        return Activity(late).busy_us

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(record.name for record in self.records)

    @property
    def streams(self) -> frozenset[int]:
        return frozenset(record.stream for record in self.records)


@dataclass(frozen=True)
class Names:
    """The names of kernbench's own kernels in this worker."""

    mark: str
    """The flush, or its stand-in if nothing is flushed."""
    pause: str


class LostRecords(Exception):
    """The records do not match the calls, so they cannot be used."""


class ForgedRecords(Exception):
    """There are more of kernbench's own kernels than kernbench launched: the source launched the others."""


def attribute(records: Iterable[Record], names: Names, calls: int, pauses: int | None = None) -> list[Activity]:
    """One Activity per call, in the order of the calls; `pauses` is how many were launched, None if unknown."""
    ordered = sorted(records, key=lambda item: (item.correlation, item.start_ns))
    if ordered and ordered[-1].correlation - ordered[0].correlation > WRAPPED:
        raise LostRecords("the correlation ids wrapped around")
    _count(ordered, names.mark, "mark", calls, calls)
    if pauses is not None:
        _count(ordered, names.pause, "pause", pauses, calls)
    found: list[_Call] = []
    inside = False
    for record in ordered:
        if record.name in (names.mark, names.pause):
            if inside:
                found[-1].next_ns = record.start_ns
            inside = record.name == names.mark
            if inside:
                found.append(_Call(record.stream))
        elif inside:
            found[-1].records.append(record)
    return [Activity(tuple(call.records), call.home, call.next_ns) for call in found]


@dataclass
class _Call:
    """One call while its records are collected."""

    home: int
    records: list[Record] = field(default_factory=list)
    next_ns: int | None = None


def _count(records: Sequence[Record], name: str, word: str, launched: int, calls: int) -> None:
    found = sum(record.name == name for record in records)
    if found == launched:
        return
    problem = f"{fmt.plural(calls, 'call')} left {fmt.plural(found, word)} in the activity records"
    if found < launched:
        raise LostRecords(problem)
    raise ForgedRecords(f"{problem}, and kernbench launched {launched}")


class Recorder(Protocol):
    """Collects activity records."""

    def start(self, host_too: bool) -> None:
        """Raises LostRecords if there will be none. Some recorders detect graphs only with the host's records too."""

    def stop(self) -> list[Record]:
        """Returns the records, or raises LostRecords. Call it after the device has finished."""
