"""What the workbench holds of every finished run: some eighty bytes of numbers, whatever its words and rows come to.

It is open for days and runs thousands of times. So the place of a run's lines, its iteration, source and geomean, and
what the rules of best and stall look at, lie in arrays; a Brief is made of them when somebody asks.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from typing import NamedTuple, overload

from kernbench.events import Summary
from kernbench.log.runs.series import Series

DIGEST = re.compile("[0-9a-f]{64}")
DIGEST_BYTES = 32
FLAGS = ("right", "best", "new_best", "took_over", "stalled", "counted", "disproved", "complete")
FLAG_BITS = tuple((name, 1 << bit) for bit, name in enumerate(FLAGS))
NO_ITERATION = -1


class RunKind(NamedTuple):
    """What few runs differ in: there is one of these for all that share it."""

    series: Series
    device: str
    interpreted: bool


class RunRow(NamedTuple):
    """What is known of a run without reading it; the names are those of its Summary."""

    position: int
    """Its place among the runs."""
    iteration: int | None
    source: str
    identity: str
    """The same for sources with one code."""
    geomean: float | None
    about: RunKind
    right: bool
    best: bool
    new_best: bool
    took_over: bool
    stalled: bool
    counted: bool
    disproved: bool
    complete: bool


class RunTable:
    """Oldest first; a column is an array."""

    def __init__(self) -> None:
        self.places = array("q")
        """Of the `finished` lines."""
        self._begins, self._runs, self._iterations = array("q"), array("q"), array("q")
        self._geomeans, self._flags, self._kinds = array("d"), array("B"), array("I")
        self._sources = bytearray()
        self._codes = array("I")
        """The first digits of each; 0 where there is none."""
        self._odd_sources: dict[int, str] = {}
        """Those that are no SHA-256: no run of ours has one."""
        self._abouts: list[RunKind] = []
        self._kind_of: dict[RunKind, int] = {}

    def add(self, summary: Summary, place: int, begin: int) -> None:
        """A run whose `finished` line begins at `place`, and its first line at `begin`."""
        # What cannot be taken raises here, before a column has grown.
        iteration = NO_ITERATION if summary.iteration is None else summary.iteration
        whole = array("q", (place, begin, hash(summary.run), iteration))
        geomean = math.nan if summary.geomean is None else float(summary.geomean)
        code = _digits(summary.code)
        flags = sum(bit for name, bit in FLAG_BITS if getattr(summary, name))
        kind = self._kind(summary)
        is_digest = DIGEST.fullmatch(summary.source) is not None
        if not is_digest:
            self._odd_sources[len(self)] = summary.source
        self._sources += bytes.fromhex(summary.source) if is_digest else bytes(DIGEST_BYTES)
        self._codes.append(code)
        for column, value in zip((self.places, self._begins, self._runs, self._iterations), whole, strict=True):
            column.append(value)
        self._geomeans.append(geomean)
        self._flags.append(flags)
        self._kinds.append(kind)

    def _kind(self, summary: Summary) -> int:
        about = RunKind(Series.of(summary), summary.environment.device, summary.environment.interpreted)
        kind = self._kind_of.setdefault(about, len(self._abouts))
        if kind == len(self._abouts):
            self._abouts.append(about)
        return kind

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> RunRow:
        geomean, flags = self._geomeans[index], self._flags[index]
        return RunRow(
            index,
            self.iteration(index),
            self.source(index),
            f"{self._codes[index]:08x}" if self._codes[index] else self.source(index),
            None if math.isnan(geomean) else geomean,
            self._abouts[self._kinds[index]],
            *(bool(flags & bit) for _name, bit in FLAG_BITS),
        )

    def iteration(self, index: int) -> int | None:
        found = self._iterations[index]
        return None if found == NO_ITERATION else found

    def source(self, index: int) -> str:
        odd = self._odd_sources.get(index)
        return self._sources[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES].hex() if odd is None else odd

    def has_code(self, index: int) -> bool:
        return self._codes[index] != 0

    def may_have_code(self, index: int, code: str) -> bool:
        """By the first digits; the run's record has them all."""
        return bool(code) and self._codes[index] == _digits(code)

    def is_of(self, index: int, run: str) -> bool:
        return self._runs[index] == hash(run)

    def find(self, run: str) -> int | None:
        """Place of the newest run with this id."""
        return next((index for index in range(len(self) - 1, -1, -1) if self.is_of(index, run)), None)

    def begin(self, run: str) -> int | None:
        """Where the lines of a run begin."""
        index = self.find(run)
        return None if index is None else self._begins[index]

    def all(self) -> RunRows:
        return RunRows(self, range(len(self)))

    def series(self, wanted: Series) -> RunRows:
        """The runs that may be compared."""
        kinds = {kind for kind, about in enumerate(self._abouts) if wanted.includes(about.series)}
        return RunRows(self, array("q", [index for index, kind in enumerate(self._kinds) if kind in kinds]))

    def numbered(self) -> RunRows:
        """The runs that made an iteration; a number that was taken twice (two machines) has both."""
        found = [index for index, iteration in enumerate(self._iterations) if iteration != NO_ITERATION]
        return RunRows(self, array("q", found))


def _digits(code: str) -> int:
    """The first digits as a number; 0 of anything that is no hash."""
    return int(code[:8], 16) if isinstance(code, str) and DIGEST.fullmatch(code) else 0


class RunRows(Sequence[RunRow]):
    """Some of the runs; each is told when it is asked for."""

    def __init__(self, table: RunTable, indices: Sequence[int]) -> None:
        self._table, self.indices = table, indices

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> RunRow: ...

    @overload
    def __getitem__(self, index: slice) -> RunRows: ...

    def __getitem__(self, index: int | slice) -> RunRow | RunRows:
        if isinstance(index, slice):
            return RunRows(self._table, self.indices[index])
        return self._table[self.indices[index]]
