"""The roofline: how fast the bytes could move at best, and which times are impossible.

The copy bandwidth is measured once per GPU and stored by UUID in the user's cache. `roofline` is the time that the
bytes would take at that rate, divided by the measured time. A kernel faster than the memory bus (bytes read, plus bytes
written beyond what may still be in the L2, at the driver's peak) did not do the work; that finding disqualifies it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from harness.device.flush import cache_folder, write_whole
from harness.device.gpu import Gpu
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import Finding

COPIED = 1 << 30
REPEATS = 10


@dataclass(frozen=True)
class Traffic:
    """Bytes that one call must move."""

    read: float
    written: float
    flops: float = 0.0


def fraction(traffic: Traffic, us: float, bandwidth: float) -> float:
    """Fraction of the copy bandwidth; above 1 if caches help."""
    return (traffic.read + traffic.written) / bandwidth / (us * 1e-6)


def impossible(traffic: Traffic, us: float, l2_bytes: int, peak: float | None) -> Finding | None:
    if peak is None:
        return None
    floor_us = (traffic.read + max(0.0, traffic.written - l2_bytes)) / peak * 1e6
    if us >= floor_us:
        return None
    return findings.make("impossible_time", us=fmt.microseconds(us), floor_us=fmt.microseconds(floor_us))


def copy_bandwidth(gpu: Gpu) -> float:
    """Bytes per second of a large copy, counting reads and writes; cached once this GPU has been measured."""
    path = cache_folder() / "bandwidth.json"
    try:
        known: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    if isinstance(known.get(gpu.uuid), float):
        return float(known[gpu.uuid])
    measured = _measure(gpu)
    write_whole(path, json.dumps({**known, gpu.uuid: measured}))
    return measured


def _measure(gpu: Gpu) -> float:
    import torch

    event: Any = torch.cuda.Event
    size = min(COPIED, torch.cuda.mem_get_info()[0] // 8)
    source = torch.empty(size, dtype=torch.uint8, device=gpu.device).random_()
    target = torch.empty_like(source)
    for _ in range(3):
        target.copy_(source)
    start, end = event(enable_timing=True), event(enable_timing=True)
    start.record()
    for _ in range(REPEATS):
        target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    return float(2 * size * REPEATS / (start.elapsed_time(end) * 1e-3))
