"""What one call spends, by kernel and by operator, from torch's own profiler; works on a CPU as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

MOST = 40
OUTSIDE = "outside torch's operators"
"""What the call spends in Python and in code of its own: without it, the shares of the rest would say nothing."""


def trace_call(call: Callable[[], Any], device: str, path: str) -> list[dict[str, Any]]:
    """Rows of kernels and operators, the largest first; the chrome trace goes to `path`."""
    cuda = device != "cpu"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    for progress in range(2):  # the first session of a process carries the profiler's own start
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
