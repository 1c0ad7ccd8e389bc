"""The clock and synchronization functions used for timing, saved before any source is loaded.

A source that replaces them (mostly to see its own timings) would be measured with its replacements. They are compared
after the source loads, before each timing and at the end; replaced functions are restored and reported.
"""

from __future__ import annotations

import importlib
from typing import Any

from harness.shared import findings
from harness.shared.results import Finding

WATCHED = (
    ("time", "perf_counter_ns perf_counter monotonic monotonic_ns process_time time"),
    ("torch.cuda", "Event Stream synchronize current_stream"),
    ("torch.cuda.Event", "record synchronize elapsed_time query"),
    ("torch.cuda.Stream", "synchronize wait_stream wait_event query"),
)


def _owner(path: str) -> Any:
    """A module, or a class inside one."""
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


_ORIGINALS: list[tuple[str, Any, str, Any]] = [
    (path, owner, name, getattr(owner, name))
    for path, names in WATCHED
    for owner in [_owner(path)]
    for name in names.split()
    if hasattr(owner, name)
]


def restore_clocks() -> Finding | None:
    """Restores the replaced functions and reports them, if any."""
    replaced = []
    for path, owner, name, original in _ORIGINALS:
        if getattr(owner, name, None) is not original:
            setattr(owner, name, original)
            replaced.append(f"{path}.{name}")
    return findings.make("clock_replaced", names=", ".join(replaced)) if replaced else None
