"""What Nsight Compute measured for a source, if a profile was kept: the numbers behind "why is it faster".

The profiles are those of ncu/profile_store.py. Reading never fails: unreadable profiles are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.regular_file import NotRegular, read_bytes
from kernbench.diagnosis.counters import Profile
from kernbench.machine.plain_text import markdown

LARGEST = 1 << 26
SUMS = ("duration_us", "instructions", "spilled")
"""Summed over all kernels of the call; unknown if one kernel lacks it."""
OF_THE_LONGEST = ("registers", "occupancy_pct", "possible_pct", "shared_bytes", "dram_pct", "sm_pct")
METRICS: dict[str, tuple[str, str, float, Callable[[float], str]]] = {
    "duration_us": ("duration", "us", 1.0, fmt.microseconds),
    "registers": ("registers", "", 1.0, fmt.whole),
    "occupancy_pct": ("occupancy", "%", 1.0, fmt.whole),
    "possible_pct": ("max occupancy", "%", 1.0, fmt.whole),
    "instructions": ("instructions", "M", 1e-6, partial(fmt.fixed, decimals=3)),
    "bytes": ("DRAM traffic", "MB", 1e-6, partial(fmt.fixed, decimals=2)),
    "bandwidth": ("DRAM", "TB/s", 1e-12, fmt.tera),
    "dram_pct": ("DRAM throughput vs peak", "%", 1.0, fmt.whole),
    "sm_pct": ("SM throughput vs peak", "%", 1.0, fmt.whole),
    "shared_bytes": ("shared memory per block", "KB", 1 / 1024, partial(fmt.fixed, decimals=1)),
    "spilled": ("spill loads and stores", "", 1.0, fmt.whole),
}
"""Name -> words, unit, factor to that unit, format; in display order."""
IN_ONE_LINE = ("registers", "occupancy_pct", "instructions", "bandwidth")


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

    @property
    def after_with_unit(self) -> str:
        """`87%`, `4.0 TB/s`, `32`."""
        return f"{self.after}{self.unit}" if self.unit == "%" else f"{self.after} {self.unit}".rstrip()


def profiles(state: Path) -> list[Profile]:
    """Every kept profile with counters, oldest first."""
    found: list[Profile] = []
    for path in (state / "profiles").glob("*.json"):
        try:
            profile = Profile.from_dict(json.loads(read_bytes(path, LARGEST)))
            if metrics(profile):
                found.append(profile)
        except (OSError, NotRegular, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            continue
    return sorted(found, key=lambda profile: profile.at)


Pair = tuple[Profile, Profile]


def pairs(found: Sequence[Profile], before: str, after: str, cases: Iterable[str]) -> list[Pair]:
    """Profiles of two sources, for the cases that have both, in their order; the newest of each."""
    old = {profile.case: profile for profile in found if profile.source == before}
    return _matched(old, found, after, cases)


def baseline_pairs(found: Sequence[Profile], after: str, cases: Iterable[str]) -> list[Pair]:
    """Profiles of the baseline and of a source, for the cases that have both, in their order."""
    old = {profile.case: profile for profile in found if profile.side == "baseline"}
    return _matched(old, found, after, cases)


def _matched(old: dict[str, Profile], found: Sequence[Profile], after: str, cases: Iterable[str]) -> list[Pair]:
    new = {profile.case: profile for profile in found if profile.source == after}
    both = ((old[case], new[case]) for case in cases if case in old and case in new)
    return [pair for pair in both if _comparable(*pair)]


def changes(before: Profile, after: Profile, names: Iterable[str] = METRICS) -> list[Change]:
    """Every metric that both profiles have."""
    old, new = metrics(before), metrics(after)
    return [_change(name, old[name], new[name]) for name in names if name in old and name in new]


def line(before: Profile, after: Profile, label: str) -> str:
    """`registers 40 -> 32, occupancy 62 -> 87% (ncu, qwen 4096x3072)`"""
    told = changes(before, after, IN_ONE_LINE)
    words = ", ".join(f"{item.words} {item.before} -> {item.after_with_unit}" for item in told)
    return f"{words} (ncu, {markdown(label)})" if words else ""


def alone(profile: Profile, label: str) -> str:
    """The same for a source without a counterpart."""
    told = changes(profile, profile, IN_ONE_LINE)
    words = ", ".join(f"{item.words} {item.after_with_unit}" for item in told)
    return f"{words} (ncu, {markdown(label)})" if words else ""


def metrics(profile: Profile) -> dict[str, float]:
    """By the names in METRICS: sums over the call where they make sense, else values of the longest kernel."""
    known: dict[str, float | None] = {name: getattr(profile.main, name, None) for name in OF_THE_LONGEST}
    known |= {name: profile.total(name) for name in SUMS}
    moved, time = profile.total("bytes_moved"), known["duration_us"]
    known["bytes"] = moved
    known["bandwidth"] = moved / time * 1e6 if moved is not None and time else None
    return {name: float(value) for name, value in known.items() if value is not None}


def _comparable(before: Profile, after: Profile) -> bool:
    """Counters from different GPUs or ncu versions cannot be compared."""
    return (before.gpu, before.ncu) == (after.gpu, after.ncu)


def _change(name: str, before: float, after: float) -> Change:
    words, unit, factor, spell = METRICS[name]
    old, new = (spell(value * factor) for value in (before, after))
    return Change(name, words, old, new, unit, after / before if before else None)
