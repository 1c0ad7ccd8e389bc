"""Whether a row's compiled baseline is the same in every worker: its kernels' names, grids, blocks and shared memory.

They are kept next to the compiler's cache, for the next worker to compare. Another choice by the compiler would
change the speedup of an unchanged source.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

from harness.device.activity import Activity, Record
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import Finding
from harness.timing.kernel_ledger import usual_count

FILE = "kernels.json"
LAUNCH = struct.Struct("<8i")
"""Grid and block in three dimensions, static and dynamic shared memory."""


def compare(folder: str, case: str, calls: Sequence[Activity]) -> Finding | None:
    """The finding if another worker's baseline ran other kernels; keeps what this one ran."""
    usual = usual_count(calls)
    records = next((call.records for call in calls if len(call.records) == usual), ())
    if not records or not all(record.launch for record in records):  # torch's profiler does not say how it launched
        return None
    now, known = [_spelled(record) for record in records], _read(folder)
    before = known.get(case)
    if before == now:
        return None
    _write(folder, {**known, case: now})
    if not isinstance(before, list):
        return None
    return findings.make("other_baseline_kernels", now=_short(now, before), before=_short(before, now))


def _spelled(record: Record) -> str:
    *sizes, static, dynamic = LAUNCH.unpack(record.launch)
    grid, block = ("x".join(map(str, part)) for part in (sizes[:3], sizes[3:]))
    return f"{record.name} grid {grid} block {block} shared {static + dynamic}"


def _short(kernels: list[str], others: list[str]) -> str:
    """The first kernel in which they differ."""
    different = [kernel for kernel in kernels if kernel not in others]
    return f"`{str(different[0])[:120]}`" if different else fmt.plural(len(kernels), "kernel")


def _read(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(folder: str, known: dict[str, Any]) -> None:
    """In one step: two workers may write at a time. Without it the next worker has nothing to compare with."""
    try:
        handle, path = tempfile.mkstemp(dir=folder)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(path, os.path.join(folder, FILE))
    except OSError:
        pass
