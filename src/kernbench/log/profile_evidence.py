"""What Nsight Compute said of a source, where a profile was kept: the numbers behind "why is it faster".

A profile is one `.kernbench/profiles/*.json` per source and case:

    {"source": SHA, "side": "solution", "case": ID, "at": UTC, "gpu": NAME, "ncu": VERSION, "kernels": [{NAME: NUMBER}]}

with a table per kernel of the call, named by `name`, and in it the numbers that SUMS and OF_THE_LONGEST name (units in
the names; what a GPU or a version lacks is left out or null). Reading never fails: what cannot be read is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.shared import format as fmt

SUMS = ("duration_us", "instructions", "bytes_read", "bytes_written", "local_loads", "local_stores")
"""Over all kernels of the call; not known as soon as one kernel lacks it."""
OF_THE_LONGEST = ("registers", "occupancy_pct", "possible_pct", "shared_bytes", "dram_pct", "sm_pct")
TOLD: dict[str, tuple[str, str, float, int]] = {
    "duration_us": ("duration", "us", 1.0, 2),
    "registers": ("registers", "", 1.0, 0),
    "occupancy_pct": ("occupancy", "%", 1.0, 0),
    "possible_pct": ("possible occupancy", "%", 1.0, 0),
    "instructions": ("instructions", "M", 1e-6, 3),
    "bytes": ("DRAM traffic", "MB", 1e-6, 2),
    "bandwidth": ("DRAM", "TB/s", 1e-12, 2),
    "dram_pct": ("DRAM, of its peak", "%", 1.0, 0),
    "sm_pct": ("SMs, of their peak", "%", 1.0, 0),
    "shared_bytes": ("shared memory of a block", "KB", 1 / 1024, 1),
    "spilled": ("loads and stores of spilled values", "", 1.0, 0),
}
"""Name -> words, unit, factor to that unit, decimals; in the order in which they are told."""
IN_ONE_LINE = ("registers", "occupancy_pct", "instructions", "bandwidth")


@dataclass(frozen=True)
class Profile:
    source: str
    case: str
    side: str = "solution"
    at: str = ""
    gpu: str = ""
    ncu: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    """By the names of TOLD."""


@dataclass(frozen=True)
class Change:
    """One metric before and after, in words."""

    name: str
    words: str
    before: str
    after: str
    unit: str
    ratio: float | None
    """After over before."""


def profiles(state: Path) -> list[Profile]:
    """Every profile with counters that was kept, oldest first."""
    found: list[Profile] = []
    for path in (state / "profiles").glob("*.json"):
        try:
            profile = _profile(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, KeyError, TypeError, ValueError, AttributeError):
            continue
        if profile.metrics:
            found.append(profile)
    return sorted(found, key=lambda profile: profile.at)


Pair = tuple[Profile, Profile]


def pairs(found: Sequence[Profile], before: str, after: str, cases: Iterable[str]) -> list[Pair]:
    """Profiles of two sources, in the order of the cases, where both are there; the newest of each."""
    old = {profile.case: profile for profile in found if profile.source == before}
    return _matched(old, found, after, cases)


def baseline_pairs(found: Sequence[Profile], after: str, cases: Iterable[str]) -> list[Pair]:
    """The baseline's profile beside a source's, in the order of the cases, where both are there."""
    old = {profile.case: profile for profile in found if profile.side == "baseline"}
    return _matched(old, found, after, cases)


def _matched(old: dict[str, Profile], found: Sequence[Profile], after: str, cases: Iterable[str]) -> list[Pair]:
    new = {profile.case: profile for profile in found if profile.source == after}
    both = ((old[case], new[case]) for case in cases if case in old and case in new)
    return [pair for pair in both if _comparable(*pair)]


def changes(before: Profile, after: Profile, names: Iterable[str] = TOLD) -> list[Change]:
    """What both profiles know, metric by metric."""
    return [_change(name, before.metrics[name], after.metrics[name]) for name in names if _both(before, after, name)]


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


def _profile(data: dict[str, Any]) -> Profile:
    about = {name: str(data.get(name) or "") for name in ("side", "at", "gpu", "ncu")}
    return Profile(str(data["source"]), str(data["case"]), **about, metrics=_metrics(data["kernels"]))


def _metrics(kernels: list[dict[str, Any]]) -> dict[str, float]:
    """The call as a whole: sums where they make sense, else what the kernel that takes longest has."""
    if not kernels:
        return {}
    longest = max(kernels, key=lambda kernel: kernel.get("duration_us") or 0.0)
    known = {name: longest.get(name) for name in OF_THE_LONGEST}
    known |= {name: _total(kernels, name) for name in SUMS}
    read, written, loads, stores = (known[name] for name in SUMS[2:])
    moved = None if read is None or written is None else read + written
    known["bytes"] = moved
    known["bandwidth"] = moved / known["duration_us"] * 1e6 if moved is not None and known["duration_us"] else None
    known["spilled"] = None if loads is None or stores is None else loads + stores
    return {name: float(value) for name, value in known.items() if name in TOLD and value is not None}


def _total(kernels: list[dict[str, Any]], name: str) -> float | None:
    values = [kernel.get(name) for kernel in kernels]
    return None if None in values else float(sum(value for value in values if value is not None))


def _comparable(before: Profile, after: Profile) -> bool:
    """Counters of another GPU, or of another ncu, are other counters."""
    return (before.gpu, before.ncu) == (after.gpu, after.ncu)


def _both(before: Profile, after: Profile, name: str) -> bool:
    return name in before.metrics and name in after.metrics


def _change(name: str, before: float, after: float) -> Change:
    words, unit, factor, decimals = TOLD[name]
    old, new = (fmt.fixed(value * factor, decimals) for value in (before, after))
    return Change(name, words, old, new, unit, after / before if before else None)
