"""Parses Nsight Compute's raw csv into a Profile, one Kernel per launch. A doubtful number is left out.

A metric that a version or a GPU lacks, or whose value is implausible, is None. `read_csv` takes any text: messages and
the program's output may appear between the lines, and a truncated row is left out and counted in `skipped`.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Literal

from harness.shared.lines import decode_checked, to_dict
from harness.shared.results import RoofBound
from kernbench.diagnosis.metrics import METRICS, STALL, STALLS, in_unit, number

SEPARATOR = "spin_kernel"
"""Part of the name of the kernel that separates the calls of two sides."""


@dataclass(frozen=True)
class Kernel:
    """One launch. A field is None if ncu gave no plausible value."""

    name: str
    """Short name: without namespaces, template arguments and parameters."""
    full_name: str = ""
    duration_us: float | None = None
    dram_pct: float | None = None
    memory_pct: float | None = None
    sm_pct: float | None = None
    l1_pct: float | None = None
    l2_pct: float | None = None
    bytes_read: float | None = None
    bytes_written: float | None = None
    l2_hit_pct: float | None = None
    sm_hz: float | None = None
    occupancy_pct: float | None = None
    possible_pct: float | None = None
    registers: float | None = None
    shared_bytes: float | None = None
    limit_registers: float | None = None
    limit_shared: float | None = None
    limit_warps: float | None = None
    limit_blocks: float | None = None
    grid: float | None = None
    block: float | None = None
    waves: float | None = None
    sms: float | None = None
    instructions: float | None = None
    issue_pct: float | None = None
    eligible_warps: float | None = None
    local_loads: float | None = None
    local_stores: float | None = None
    global_loads: float | None = None
    global_stores: float | None = None
    load_sectors: float | None = None
    load_bytes_per_sector: float | None = None
    store_bytes_per_sector: float | None = None
    shared_conflicts: float | None = None
    shared_turns: float | None = None
    alu_pct: float | None = None
    fma_pct: float | None = None
    fp64_pct: float | None = None
    xu_pct: float | None = None
    tensor_pct: float | None = None
    cycles_per_issue: float | None = None
    stalls: dict[str, float] = field(default_factory=dict)
    """Share of a warp's time between two of its instructions, 0 to 1, by reason; `selected` is not waiting."""

    @property
    def spilled(self) -> float | None:
        """Instructions that load or store a spilled value."""
        return None if self.local_loads is None or self.local_stores is None else self.local_loads + self.local_stores

    @property
    def bytes_moved(self) -> float | None:
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second to and from DRAM."""
        moved = self.bytes_moved
        return None if moved is None or not self.duration_us else moved / self.duration_us * 1e6

    @property
    def load_bytes_per_lane(self) -> float | None:
        """Average width of a thread's loads; 16 is the maximum."""
        if not self.global_loads or self.load_sectors is None or self.load_bytes_per_sector is None:
            return None
        return self.load_sectors * self.load_bytes_per_sector / self.global_loads / 32

    @property
    def top_stalls(self) -> list[tuple[str, float]]:
        """The three most common stalls."""
        waiting = [item for item in self.stalls.items() if item[0] != "selected" and item[1] >= 0.005]
        return sorted(waiting, key=lambda item: -item[1])[:3]

    @property
    def limits(self) -> list[str]:
        """What limits the blocks per SM: the smallest of the four limits, by name."""
        named = {
            "registers": self.limit_registers,
            "shared memory": self.limit_shared,
            "warp slots": self.limit_warps,
            "block slots": self.limit_blocks,
        }
        known = {name: blocks for name, blocks in named.items() if blocks is not None}
        least = min(known.values(), default=0.0)
        return [name for name, blocks in known.items() if blocks == least]


@dataclass(frozen=True)
class Facts:
    """The compiler's facts about one kernel, without counters."""

    name: str
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    warps: int | None = None
    stages: int | None = None
    occupancy_pct: float | None = None
    """The occupancy that the GPU's limits allow."""
    limit: str = ""


@dataclass(frozen=True)
class Profile:
    """One call of one side on one case."""

    kernels: tuple[Kernel, ...] = ()
    """In launch order; empty if only `facts` are known."""
    side: str = "solution"
    case: str = ""
    label: str = ""
    source: str = ""
    """Hash of the snapshot; for a baseline its name and the task's hash."""
    gpu: str = ""
    ncu: str = ""
    """Version; empty without ncu."""
    full: bool = False
    at: str = ""
    facts: tuple[Facts, ...] = ()
    needed_bytes: float | None = None
    """The least bytes that the call must move: every input and every output once."""
    bound: RoofBound | None = None
    """What bounds the call, as its row says; None if that is not known."""
    skipped: int = 0
    """Unreadable rows of ncu's output."""
    report: str = ""
    """Path of the .ncu-rep, if one was stored."""

    @property
    def duration_us(self) -> float | None:
        times = [kernel.duration_us for kernel in self.kernels]
        return sum(time for time in times if time is not None) if times and None not in times else None

    @property
    def main(self) -> Kernel | None:
        """The longest kernel."""
        return max(self.kernels, key=lambda kernel: kernel.duration_us or 0.0, default=None)

    @property
    def share(self) -> float | None:
        """The main kernel's share of the call's time."""
        main, whole = self.main, self.duration_us
        return None if main is None or main.duration_us is None or not whole else main.duration_us / whole

    def total(self, name: str) -> float | None:
        """A sum over all kernels; None if one is unknown."""
        values = [getattr(kernel, name) for kernel in self.kernels]
        return sum(values) if values and None not in values else None

    def as_dict(self) -> dict[str, object]:
        return to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Profile:
        return decode_checked(cls, data)


@dataclass(frozen=True)
class TraceRow:
    """One kernel or operator of a call."""

    kind: Literal["kernel", "operator"]
    name: str
    us: float
    """A kernel's time on the GPU, or an operator's self time on the host."""
    count: int


@dataclass(frozen=True)
class Table:
    """Kernels in order, and the number of unreadable rows."""

    kernels: tuple[Kernel, ...] = ()
    skipped: int = 0

    def sides(self, count: int) -> list[tuple[Kernel, ...]] | None:
        """The kernels of each side; None if the separators do not match."""
        parts: list[list[Kernel]] = [[]]
        for kernel in self.kernels:
            if SEPARATOR in kernel.full_name:
                parts.append([])
            else:
                parts[-1].append(kernel)
        return [tuple(part) for part in parts] if len(parts) == count else None


def read_csv(text: str) -> Table:
    header: list[str] = []
    units: list[str] = []
    kernels: list[Kernel] = []
    skipped = 0
    for cells in _rows(text):
        if cells[0] == "ID" and "Kernel Name" in cells:
            header, units = cells, []
        elif not header:
            continue
        elif len(cells) != len(header):
            skipped += cells[0].isdigit()
        elif cells[0] == "" and not units:
            units = cells
        elif cells[0].isdigit() and units:
            kernels.append(_kernel(header, units, cells))
        else:
            skipped += cells[0].isdigit()
    return Table(tuple(kernels), skipped)


def _rows(text: str) -> Iterator[list[str]]:
    """Rows of ncu's csv, whose cells are all quoted; a torn row yields only its first cell. Other lines are output."""
    for line in text.replace("\0", "").splitlines():
        start = line.find('"')
        if start < 0 or '","' not in line:
            continue
        if not line[:start].strip() and line.rstrip().endswith('"'):
            with contextlib.suppress(csv.Error):
                yield next(csv.reader([line.strip()], strict=True))
                continue
        yield line[start + 1 :].split('","')[:1]


def _kernel(header: list[str], units: list[str], cells: list[str]) -> Kernel:
    columns = {name: (unit, cell) for name, unit, cell in zip(header, units, cells, strict=True)}
    known = {metric.field: in_unit(metric.unit, *columns.get(metric.name, ("", ""))) for metric in METRICS}
    for name, column in (("grid", "Grid Size"), ("block", "Block Size")):
        if known[name] is None:
            known[name] = _product(columns.get(column, ("", ""))[1])
    full = columns["Kernel Name"][1]
    return Kernel(name=short_name(full), full_name=full, stalls=_stalls(columns, known["cycles_per_issue"]), **known)


def _stalls(columns: dict[str, tuple[str, str]], whole: float | None) -> dict[str, float]:
    found = {name: number(columns.get(STALL.format(name), ("", ""))[1]) for name in STALLS}
    cycles = {name: value for name, value in found.items() if value is not None and value >= 0}
    whole = whole or sum(cycles.values())
    return {name: value / whole for name, value in cycles.items()} if whole else {}


def _product(cell: str) -> float | None:
    """(256, 1, 1) -> 256."""
    parts = re.findall(r"\d+", cell)
    return float(math.prod(map(int, parts))) if len(parts) == 3 else None


def short_name(full: str) -> str:
    """`void at::native::fill<float>(T1 *, int)` -> `fill`: without return type, namespaces, templates, parameters."""
    text = full.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").strip()
    plain = "".join(_outside(text)).strip()
    name = plain.split()[-1].rpartition("::")[2] if plain.split() else ""
    return name or full.strip() or "?"


def _outside(text: str) -> Iterable[str]:
    """The characters outside <...>, up to the parameters."""
    depth = 0
    for at, sign in enumerate(text):
        if sign == "(" and depth == 0 and at:
            return
        if sign == "<":
            depth += 1
        elif sign == ">" and text[at - 1 : at] != "-":
            depth = max(depth - 1, 0)
        elif depth == 0:
            yield sign


assert {metric.field for metric in METRICS} <= {item.name for item in fields(Kernel)}
