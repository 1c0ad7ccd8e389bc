"""What Nsight Compute counted: its raw csv -> Profile, one Kernel per launch. Never a wrong number: rather none.

METRICS is the whole list that `n` asks for, with the unit that the rest of kernbench reckons in. ncu picks a unit per
value (`us` here, `ns` there; `Kbyte` beside `byte`), so every value is converted from the unit that stands above it; a
value whose unit is not known, or that is not a number, becomes None, as does a metric that a version or a GPU lacks.
`read_csv` takes any text: messages and the program's own prints may stand between the lines, and a row cut short is
left out and counted in `skipped`.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from harness.records import decode, to_dict

SEPARATOR = "spin_kernel"
"""Part of the name of the kernel that stands between the calls of two sides."""


class Metric(NamedTuple):
    field: str
    """Field of Kernel."""
    name: str
    """As ncu names it."""
    unit: str
    """What the field is in."""
    meaning: str


PEAK = "avg.pct_of_peak_sustained_elapsed"
METRICS = (
    Metric("duration_us", "gpu__time_duration.sum", "us", "time on the GPU"),
    Metric("dram_pct", f"gpu__dram_throughput.{PEAK}", "%", "DRAM, of its peak"),
    Metric("memory_pct", f"gpu__compute_memory_throughput.{PEAK}", "%", "busiest part of the memory system"),
    Metric("sm_pct", f"sm__throughput.{PEAK}", "%", "busiest part of the SMs"),
    Metric("l1_pct", f"l1tex__throughput.{PEAK}", "%", "L1 and shared memory, of their peak"),
    Metric("l2_pct", f"lts__throughput.{PEAK}", "%", "L2, of its peak"),
    Metric("bytes_read", "dram__bytes_read.sum", "byte", "read from DRAM"),
    Metric("bytes_written", "dram__bytes_write.sum", "byte", "written to DRAM"),
    Metric("l2_hit_pct", "lts__t_sector_hit_rate.pct", "%", "L2 hits"),
    Metric("sm_hz", "gpc__cycles_elapsed.avg.per_second", "hz", "clock of the SMs while it ran"),
    Metric("occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "warps resident, of the most"),
    Metric("possible_pct", "sm__maximum_warps_per_active_cycle_pct", "%", "occupancy that the launch allows"),
    Metric("registers", "launch__registers_per_thread", "register/thread", "registers of a thread"),
    Metric("shared_bytes", "launch__shared_mem_per_block", "byte/block", "shared memory of a block"),
    Metric("limit_registers", "launch__occupancy_limit_registers", "block", "blocks per SM that the registers allow"),
    Metric("limit_shared", "launch__occupancy_limit_shared_mem", "block", "blocks per SM that shared memory allows"),
    Metric("limit_warps", "launch__occupancy_limit_warps", "block", "blocks per SM that the warp slots allow"),
    Metric("limit_blocks", "launch__occupancy_limit_blocks", "block", "blocks per SM that the block slots allow"),
    Metric("grid", "launch__grid_size", "", "blocks launched"),
    Metric("block", "launch__block_size", "", "threads of a block"),
    Metric("waves", "launch__waves_per_multiprocessor", "", "how often the grid fills the GPU"),
    Metric("sms", "launch__sm_count", "SM", "multiprocessors"),
    Metric("instructions", "smsp__inst_executed.sum", "inst", "warp instructions"),
    Metric("issue_pct", "smsp__issue_active.avg.pct_of_peak_sustained_active", "%", "cycles with an issue"),
    Metric("eligible_warps", "smsp__warps_eligible.avg.per_cycle_active", "warp", "warps ready, per scheduler"),
    Metric("local_loads", "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum", "", "loads of spilled values"),
    Metric("local_stores", "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum", "", "stores of spilled values"),
    Metric("global_loads", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "", "global load instructions"),
    Metric("global_stores", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "", "global store instructions"),
    Metric("load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector", "sectors that loads ask for"),
    Metric(
        "load_bytes_per_sector",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
        "byte/sector",
        "bytes used of every 32 that a load moves",
    ),
    Metric(
        "store_bytes_per_sector",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
        "byte/sector",
        "bytes used of every 32 that a store moves",
    ),
    Metric("shared_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "extra shared-memory turns"),
    Metric("shared_turns", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "shared-memory turns in all"),
    Metric("alu_pct", f"sm__pipe_alu_cycles_active.{PEAK}", "%", "integer and logic pipe"),
    Metric("fma_pct", f"sm__pipe_fma_cycles_active.{PEAK}", "%", "multiply-add pipe"),
    Metric("fp64_pct", f"sm__pipe_fp64_cycles_active.{PEAK}", "%", "double-precision pipe"),
    Metric("xu_pct", f"sm__inst_executed_pipe_xu.{PEAK}", "%", "special functions and conversions"),
    Metric("tensor_pct", f"sm__pipe_tensor_cycles_active.{PEAK}", "%", "tensor cores"),
    Metric(
        "cycles_per_issue", "smsp__average_warp_latency_per_inst_issued.ratio", "cycle", "from one issue to the next"
    ),
)
STALLS = (
    "barrier branch_resolving dispatch_stall drain gmma imc_miss lg_throttle long_scoreboard math_pipe_throttle membar"
    " mio_throttle misc no_instruction not_selected selected short_scoreboard sleeping tex_throttle wait"
).split()
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
NAMES = (*(metric.name for metric in METRICS), *map(_STALL.format, STALLS))
"""Every metric that the summary needs."""

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALES = {
    "us": {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6},
    **{
        unit: {prefix + spelled: scale for prefix, scale in _PREFIXES.items()}
        for unit, spelled in (("byte", "byte"), ("byte/block", "byte/block"))
    },
    "hz": {(prefix + "hz" if prefix else "hz"): scale for prefix, scale in _PREFIXES.items()}
    | {"cycle/nsecond": 1e9, "cycle/usecond": 1e6, "cycle/second": 1.0, "cycle/ns": 1e9, "cycle/us": 1e6},
    "%": {"%": 1.0},
}
_PLAIN = {"", "register/thread", "block", "SM", "inst", "warp", "byte/sector", "cycle", "sector", "request", "thread"}
_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?$")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?$")


@dataclass(frozen=True)
class Kernel:
    """One launch. A field is None where ncu gave nothing that can be believed."""

    name: str
    """Short: without namespaces, template arguments and parameters."""
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
        """How wide a thread's loads are on average; 16 is the widest."""
        if not self.global_loads or self.load_sectors is None or self.load_bytes_per_sector is None:
            return None
        return self.load_sectors * self.load_bytes_per_sector / self.global_loads / 32

    @property
    def top_stalls(self) -> list[tuple[str, float]]:
        """The three largest reasons for waiting."""
        waiting = [item for item in self.stalls.items() if item[0] != "selected" and item[1] >= 0.005]
        return sorted(waiting, key=lambda item: -item[1])[:3]

    @property
    def limits(self) -> list[str]:
        """What keeps more blocks off an SM: the smallest of the four limits, by name."""
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
    """What the compiler says of one kernel, without any counter."""

    name: str
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    warps: int | None = None
    stages: int | None = None
    occupancy_pct: float | None = None
    """What the GPU's limits allow."""
    limit: str = ""


@dataclass(frozen=True)
class Profile:
    """One call of one side on one case."""

    kernels: tuple[Kernel, ...] = ()
    """In the order of their launch; empty where only `facts` are known."""
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
    """Every input once and every output once: what the call must move at least."""
    skipped: int = 0
    """Rows of ncu's output that could not be read."""
    report: str = ""
    """Path of the .ncu-rep, where one was kept."""

    @property
    def duration_us(self) -> float | None:
        times = [kernel.duration_us for kernel in self.kernels]
        return sum(time for time in times if time is not None) if times and None not in times else None

    @property
    def main(self) -> Kernel | None:
        """The kernel that takes longest."""
        return max(self.kernels, key=lambda kernel: kernel.duration_us or 0.0, default=None)

    @property
    def share(self) -> float | None:
        """Of the call's time that the main kernel takes."""
        main, whole = self.main, self.duration_us
        return None if main is None or main.duration_us is None or not whole else main.duration_us / whole

    def total(self, name: str) -> float | None:
        """A sum over all kernels; None as soon as one is not known."""
        values = [getattr(kernel, name) for kernel in self.kernels]
        return sum(values) if values and None not in values else None

    def as_dict(self) -> dict[str, object]:
        return to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Profile:
        return decode(cls, data)


@dataclass(frozen=True)
class Table:
    """Kernels as read, in order, and how many rows could not be."""

    kernels: tuple[Kernel, ...] = ()
    skipped: int = 0

    def sides(self, count: int) -> list[tuple[Kernel, ...]] | None:
        """The kernels of each side; None when the separators do not add up."""
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
    """Lines that are rows of ncu's csv, every cell quoted; of a torn row the first cell only. The rest is prints."""
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
    known = {metric.field: _value(metric.unit, *columns.get(metric.name, ("", ""))) for metric in METRICS}
    for name, column in (("grid", "Grid Size"), ("block", "Block Size")):
        if known[name] is None:
            known[name] = _product(columns.get(column, ("", ""))[1])
    full = columns["Kernel Name"][1]
    return Kernel(name=short_name(full), full_name=full, stalls=_stalls(columns, known["cycles_per_issue"]), **known)


def _stalls(columns: dict[str, tuple[str, str]], whole: float | None) -> dict[str, float]:
    found = {name: _number(columns.get(_STALL.format(name), ("", ""))[1]) for name in STALLS}
    cycles = {name: value for name, value in found.items() if value is not None and value >= 0}
    whole = whole or sum(cycles.values())
    return {name: value / whole for name, value in cycles.items()} if whole else {}


def _value(wanted: str, unit: str, cell: str) -> float | None:
    number = _number(cell)
    if number is None:
        return None
    if wanted in _SCALES:
        scale = _SCALES[wanted].get(unit)
        return None if scale is None else number * scale
    return number if unit in _PLAIN else None


def _number(cell: str) -> float | None:
    cell = cell.strip()
    if _GROUPED.match(cell):
        cell = cell.replace(",", "")
    if not _NUMBER.match(cell):
        return None
    number = float(cell)
    return number if math.isfinite(number) else None


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
