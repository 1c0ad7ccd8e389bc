"""What Nsight Compute said of a source, where a profile was kept: the numbers behind "why is it faster".

A profile is `.kernbench/profiles/*.json`, one object per source and case:

    {"schema": 1, "source": SHA, "case": ID, "at": UTC, "gpu": NAME, "ncu": VERSION, "metrics": {NAME: NUMBER}}

Names of metrics carry their unit and are those of METRICS; others are kept and not shown. A metric that a GPU or a
version does not have is left out or null. Reading never fails: what cannot be read is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.records import decode

METRICS: dict[str, tuple[str, str, float, int]] = {
    "duration_us": ("duration", "us", 1.0, 2),
    "registers": ("registers", "", 1.0, 0),
    "occupancy_percent": ("occupancy", "%", 1.0, 0),
    "occupancy_possible_percent": ("possible occupancy", "%", 1.0, 0),
    "instructions": ("instructions", "M", 1e-6, 3),
    "dram_bytes": ("DRAM traffic", "MB", 1e-6, 1),
    "dram_bytes_per_s": ("DRAM", "TB/s", 1e-12, 2),
    "dram_percent": ("DRAM throughput", "%", 1.0, 0),
    "sm_percent": ("SM throughput", "%", 1.0, 0),
    "shared_bytes": ("shared memory", "KB", 1 / 1024, 1),
    "spilled_bytes": ("spilled", "B", 1.0, 0),
}
"""Name -> words, unit, factor to that unit, decimals; in the order in which they are told."""
IN_ONE_LINE = ("registers", "occupancy_percent", "instructions", "dram_bytes_per_s")


@dataclass(frozen=True)
class Profile:
    source: str
    case: str
    metrics: dict[str, float] = field(default_factory=dict)
    at: str = ""
    gpu: str = ""
    ncu: str = ""


@dataclass(frozen=True)
class Change:
    """One metric before and after, in words."""

    words: str
    before: str
    after: str
    unit: str

    @property
    def changed(self) -> bool:
        return self.before != self.after


def profiles(state: Path) -> list[Profile]:
    """Every profile that was kept, oldest first."""
    found: list[Profile] = []
    for path in sorted((state / "profiles").glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            numbers = {key: float(value) for key, value in data["metrics"].items() if value is not None}
            found.append(decode(Profile, {**data, "metrics": numbers}))
        except (OSError, KeyError, TypeError, ValueError, AttributeError):
            continue
    return sorted(found, key=lambda profile: profile.at)


def pair(found: Sequence[Profile], before: str, after: str, cases: Iterable[str]) -> tuple[Profile, Profile] | None:
    """Profiles of two sources on the first of these cases for which both are there; the newest of each."""
    by_name = {(profile.source, profile.case): profile for profile in found}
    for case in cases:
        old, new = by_name.get((before, case)), by_name.get((after, case))
        if old is not None and new is not None:
            return old, new
    return None


def changes(before: Profile, after: Profile, names: Iterable[str] = METRICS) -> list[Change]:
    """What both profiles know, metric by metric."""
    both = [name for name in names if name in before.metrics and name in after.metrics]
    return [
        Change(METRICS[name][0], _number(name, before.metrics[name]), _number(name, after.metrics[name]), METRICS[name][1])
        for name in both
    ]


def line(before: Profile, after: Profile, label: str) -> str:
    """`registers 40 -> 32, occupancy 62 -> 87 % (ncu, qwen 4096x3072)`"""
    told = changes(before, after, IN_ONE_LINE)
    words = ", ".join(f"{item.words} {item.before} -> {item.after} {item.unit}".rstrip() for item in told)
    return f"{words} (ncu, {label})" if words else ""


def alone(profile: Profile, label: str) -> str:
    """The same for a source that has nothing to be compared with."""
    told = changes(profile, profile, IN_ONE_LINE)
    words = ", ".join(f"{item.words} {item.after} {item.unit}".rstrip() for item in told)
    return f"{words} (ncu, {label})" if words else ""


def _number(name: str, value: float) -> str:
    _words, _unit, factor, decimals = METRICS[name]
    return f"{value * factor:.{decimals}f}"
