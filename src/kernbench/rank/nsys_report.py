"""A recording from an SQLite export of Nsight Systems (`nsys export --type sqlite`).

Tables and columns differ between versions and are created only if there is something in them: what is there is looked
up, and what is not there is said.
"""

from __future__ import annotations

import bisect
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness.shared.errors import UserError
from kernbench.rank import python_frames
from kernbench.rank.recording import LAUNCHED_BY_GRAPH, Frame, Origin, Recording

KERNELS, RUNTIME, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
WITHOUT_NAMES = {"CUPTI_ACTIVITY_KIND_MEMCPY": "Memcpy", "CUPTI_ACTIVITY_KIND_MEMSET": "Memset", GRAPHS: "CUDA graph"}
CHAINS = "CUDA_CALLCHAINS"
STRINGS = "StringIds"
MAGIC = b"SQLite format 3\0"
REPORTS = (".nsys-rep", ".qdrep")
NAMES = ("demangledName", "shortName", "name")
"""Columns with a kernel's name; the first that is there."""
PUSH_POP = 59
"""The eventType of an NVTX range that one thread opened and closed."""
NO_LAUNCHES = f"It has no {RUNTIME}: kernels stand alone; profile with --trace=cuda."
NO_STACKS = "It has no Python stacks: kernels go to NVTX ranges; profile with --python-backtrace=cuda."
NO_RANGES = "It has no NVTX ranges either: profile with --trace=cuda,nvtx --pytorch=autograd-nvtx."
WHOLE_GRAPHS = "It has CUDA graphs as a whole, without their kernels: profile with --cuda-graph-trace=node."
NO_SHAPES = "It has no shapes: whether a fast path's conditions hold is not known."


Correlation = tuple[Any, int | None]
"""An id, and the process that it counts in; None if this is not known."""


class Launch(NamedTuple):
    start: int
    thread: Any
    name: str
    chain: Any


@dataclass
class _Ranges:
    """The NVTX ranges of one thread, by their start. They are nested, so each has one that it is in, or none."""

    starts: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    around: list[int] = field(default_factory=list)

    def add(self, start: int, end: int, name: str) -> None:
        self.around.append(self._index(start))
        self.starts.append(start)
        self.spans.append((start, end, name))

    def innermost(self, at: int) -> str:
        index = self._index(at)
        return self.spans[index][2] if index >= 0 else ""

    def _index(self, at: int) -> int:
        index = bisect.bisect_right(self.starts, at) - 1
        while index >= 0 and self.spans[index][1] < at:
            index = self.around[index]
        return index


def is_export(path: Path) -> bool:
    """By its first bytes; nsys's own format, which only nsys reads, is refused."""
    if path.suffix in REPORTS:
        raise UserError(f"{path} has to be exported first: `nsys export --type sqlite {path}`")
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None


def read(path: Path) -> Recording:
    try:
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) as database:
            try:
                return _Report(path, database).recording()
            finally:
                database.rollback()
    except sqlite3.Error as problem:
        raise UserError(f"{path} cannot be read as an SQLite export of nsys: {problem}") from None


class _Report:
    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path, self._database = path, database
        self._strings = dict(self._rows(STRINGS, "id", "value"))
        self._frames: dict[Any, tuple[Frame, ...]] = {}

    def recording(self) -> Recording:
        name = next((name for name in NAMES if name in self._columns(KERNELS)), None)
        if name is None:
            tool = "`nsys profile --trace=cuda,nvtx` and `nsys export --type sqlite`"
            raise UserError(f"{self._path} has no kernels (table {KERNELS}); it takes {tool}")
        recording = Recording(str(self._path))
        launches = dict(self._launches())
        ranges = self._ranges()
        busy: dict[Any, list[tuple[float, float]]] = {}
        for start, end, correlation, device, kernel in self._work(name):
            launch = launches.get(correlation)
            frames = self._stack(launch.chain) if launch else ()
            span = ranges[launch.thread].innermost(launch.start) if launch and launch.thread in ranges else ""
            graph = bool(launch and launch.name.startswith(LAUNCHED_BY_GRAPH))
            operator = span.partition(",")[0] if span.startswith("aten::") else ""
            recording.add(Origin(kernel, operator, frames, span.partition(",")[0], graph), (end - start) / 1000)
            busy.setdefault(device, []).append((start / 1000, end / 1000))
        for spans in busy.values():
            recording.cover(spans)
        if not recording.work:
            raise UserError(f"{self._path} has an empty table {KERNELS}: no GPU work was seen")
        self._say_unknown(recording, bool(launches), bool(ranges))
        return recording

    def _say_unknown(self, recording: Recording, launches: bool, ranges: bool) -> None:
        if not launches:
            recording.unknown.append(NO_LAUNCHES)
        if not any(origin.frames for origin in recording.work):
            recording.unknown += [NO_STACKS, *([] if ranges else [NO_RANGES])]
        if any(origin.kernel == WITHOUT_NAMES[GRAPHS] for origin in recording.work):
            recording.unknown.append(WHOLE_GRAPHS)
        recording.unknown.append(NO_SHAPES)

    def _work(self, name: str) -> Iterator[tuple[int, int, Correlation, Any, str]]:
        """Start, end, correlation, device and name of everything on the GPU."""
        wanted = ("start", "end", "correlationId", "globalPid", "deviceId")
        for start, end, correlation, process, device, text in self._rows(KERNELS, *wanted, name):
            yield start, end, (correlation, _process(process)), device, self._text(text)
        for table, kind in WITHOUT_NAMES.items():
            for start, end, correlation, process, device in self._rows(table, *wanted):
                yield start, end, (correlation, _process(process)), device, kind

    def _launches(self) -> Iterator[tuple[Correlation, Launch]]:
        wanted = ("correlationId", "start", "globalTid", "nameId", "callchainId")
        for correlation, start, thread, name, chain in self._rows(RUNTIME, *wanted):
            launch = Launch(start, thread, self._text(name), chain)
            yield (correlation, _process(thread)), launch
            yield (correlation, None), launch

    def _ranges(self) -> dict[Any, _Ranges]:
        found: dict[Any, _Ranges] = {}
        wanted = ("start", "end", "globalTid", "text", "textId", "eventType")
        rows = [row for row in self._rows(RANGES, *wanted) if row[1] is not None and row[5] in (None, PUSH_POP)]
        for start, end, thread, text, text_id, _ in sorted(rows, key=lambda row: (row[0], -row[1])):
            found.setdefault(thread, _Ranges()).add(start, end, text or self._text(text_id))
        return found

    def _stack(self, chain: Any) -> tuple[Frame, ...]:
        """The functions outside torch of a call chain, whose Python frames have a .py file for their module."""
        if chain is None or not self._columns(CHAINS):
            return ()
        if chain not in self._frames:
            where = f"WHERE id = {int(chain)} ORDER BY stackDepth" if "stackDepth" in self._columns(CHAINS) else ""
            rows = self._rows(CHAINS, "symbol", "module", end=where)
            named = [(self._text(symbol), self._text(module)) for symbol, module in rows]
            frames = [python_frames.parse(f"{module}(0): {symbol}") for symbol, module in named if ".py" in module]
            self._frames[chain] = tuple([frame for frame in frames if frame is not None][:2])
        return self._frames[chain]

    def _text(self, value: Any) -> str:
        """Strings are numbers that another table explains, or, in old exports, stand there themselves."""
        return str(self._strings.get(value, "") if isinstance(value, int) else value or "")

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}

    def _rows(self, table: str, *wanted: str, end: str = "") -> Iterator[tuple[Any, ...]]:
        """The wanted columns, None for those that this version lacks; nothing if the table is not there."""
        there = self._columns(table)
        if there:
            chosen = ", ".join(f'"{name}"' if name in there else "NULL" for name in wanted)
            yield from self._database.execute(f"SELECT {chosen} FROM {table} {end}")


def _process(number: int | None) -> int | None:
    """The process in a globalPid or globalTid, whose last 24 bits are for the thread."""
    return None if number is None else number >> 24
