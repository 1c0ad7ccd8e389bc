"""The metrics of a summary, each with its unit and meaning, and the conversion of ncu's cells to that unit.

ncu picks a unit per value (`us` or `ns`, `Kbyte` or `byte`), so a cell is converted from the unit in its column's head.
A cell that is not a number, or has an unknown unit, is None: never a wrong number.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple


class Metric(NamedTuple):
    field: str
    """Field of Kernel."""
    name: str
    """ncu's name."""
    unit: str
    """The unit of the field."""
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
    Metric("occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "resident warps, of the maximum"),
    Metric("possible_pct", "sm__maximum_warps_per_active_cycle_pct", "%", "occupancy that the launch allows"),
    Metric("registers", "launch__registers_per_thread", "register/thread", "registers of a thread"),
    Metric("shared_bytes", "launch__shared_mem_per_block", "byte/block", "shared memory of a block"),
    Metric("limit_registers", "launch__occupancy_limit_registers", "block", "blocks per SM that the registers allow"),
    Metric("limit_shared", "launch__occupancy_limit_shared_mem", "block", "blocks per SM that shared memory allows"),
    Metric("limit_warps", "launch__occupancy_limit_warps", "block", "blocks per SM that the warp slots allow"),
    Metric("limit_blocks", "launch__occupancy_limit_blocks", "block", "blocks per SM that the block slots allow"),
    Metric("grid", "launch__grid_size", "", "blocks launched"),
    Metric("block", "launch__block_size", "", "threads of a block"),
    Metric("waves", "launch__waves_per_multiprocessor", "", "how many times the grid fills the GPU"),
    Metric("sms", "launch__sm_count", "SM", "multiprocessors"),
    Metric("instructions", "smsp__inst_executed.sum", "inst", "warp instructions"),
    Metric(
        "issue_pct",
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "%",
        "cycles in which an instruction is issued",
    ),
    Metric("eligible_warps", "smsp__warps_eligible.avg.per_cycle_active", "warp", "warps ready, per scheduler"),
    Metric("local_loads", "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum", "", "local-memory loads: spills or arrays"),
    Metric(
        "local_stores", "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum", "", "local-memory stores: spills or arrays"
    ),
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
    Metric(
        "shared_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "extra shared-memory wavefronts"
    ),
    Metric("shared_turns", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "shared-memory wavefronts in total"),
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
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
NAMES = (*(metric.name for metric in METRICS), *map(STALL.format, STALLS))
"""Every metric that the summary needs."""

STALL_WORDS = {
    "barrier": "waiting at barriers",
    "branch_resolving": "branches",
    "dispatch_stall": "dispatch",
    "drain": "draining stores",
    "gmma": "matrix instructions",
    "imc_miss": "constant-cache misses",
    "lg_throttle": "too many local or global requests",
    "long_scoreboard": "waiting for global memory",
    "math_pipe_throttle": "full arithmetic pipes",
    "membar": "memory fences",
    "mio_throttle": "full shared-memory queue",
    "misc": "other",
    "no_instruction": "instruction fetch",
    "not_selected": "ready, but another warp was chosen",
    "short_scoreboard": "waiting for shared memory",
    "sleeping": "sleeping",
    "tex_throttle": "full texture queue",
    "wait": "fixed latencies",
}

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


def in_unit(wanted: str, unit: str, cell: str) -> float | None:
    found = number(cell)
    if found is None:
        return None
    if wanted in _SCALES:
        scale = _SCALES[wanted].get(unit)
        return None if scale is None else found * scale
    return found if unit in _PLAIN else None


def number(cell: str) -> float | None:
    cell = cell.strip()
    if _GROUPED.match(cell):
        cell = cell.replace(",", "")
    if not _NUMBER.match(cell):
        return None
    found = float(cell)
    return found if math.isfinite(found) else None
