"""Time spent in one call, by kernel and by operator, from torch's profiler; also works on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

MOST = 40
OUTSIDE = "outside torch's operators"
"""Time in Python and in the solution's own code; without it, the shares of the other rows would be misleading."""


def trace_call(call: Callable[[], Any], device: str, path: str) -> list[dict[str, Any]]:
    """Rows of kernels and operators, largest first; writes the Chrome trace to `path`."""
    cuda = device != "cpu"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    for progress in range(2):  # the first session of a process includes the profiler's startup
        with profile(activities=activities) as session:
            with record_function(OUTSIDE):
                call()
            if cuda:
                torch.cuda.synchronize()
        if progress:
            session.export_chrome_trace(path)
    rows = [_row(event) for event in session.key_averages()]
    seen = (row for row in rows if row["us"] > 0 and (row["kind"], row["name"]) != ("kernel", OUTSIDE))
    return sorted(seen, key=lambda row: (row["kind"], -row["us"]))[:MOST]


def _row(event: Any) -> dict[str, Any]:
    on_gpu = str(event.device_type).endswith("CUDA")
    spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
    return {
        "kind": "kernel" if on_gpu else "operator",
        "name": str(event.key),
        "us": float(spent),
        "count": int(event.count),
    }
