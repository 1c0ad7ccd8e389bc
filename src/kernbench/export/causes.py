"""The part of a pull request that explains the gain: Nsight Compute before and after, and which counters changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.shared import format as fmt
from kernbench.diagnosis.counters import Profile
from kernbench.events import Summary
from kernbench.export.collect import Collected, name_of
from kernbench.log import profile_evidence
from kernbench.log.entries import entry_text
from kernbench.log.profile_evidence import Change

WORTH_SAYING = 0.03
"""Counters that changed by less are not listed as a cause."""
MOST_PAIRS = 3
BETTER_UP = {"occupancy_pct", "possible_pct", "bandwidth"}
BETTER_DOWN = {"registers", "instructions", "bytes", "shared_bytes", "spilled"}
MISSING_WHY = "_Missing: this section is derived from two profiles (registers, occupancy, instructions, bandwidth)._"


def section(about: Collected, before: Summary | None, after: Summary, cases: Sequence[str]) -> list[str]:
    """Every case with profiles of both sides, the hottest headline case first; if there is none, what is missing."""
    why = "## Why it is faster" if after.ratio and after.ratio.verdict == "faster" else "## What the counters say"
    pairs = profile_evidence.pairs(about.profiles, before.source, after.source, cases) if before else []
    names = (name_of(before) if before else "", name_of(after))
    if not pairs:
        pairs = profile_evidence.baseline_pairs(about.profiles, after.source, cases)
        names = (after.baseline, name_of(after))
    if about.task.device == "cpu" and not pairs:
        return [why, "", "_To be written by the author: a CPU task has no GPU counters._", ""]
    if not pairs:
        return [*_missing(about, before, cases), why, "", MISSING_WHY, ""]
    labels = {case.id: case.label for case in about.task.cases}
    tables = [line for pair in pairs[:MOST_PAIRS] for line in _table(pair, names, labels[pair[1].case])]
    reasons = [line for pair in pairs[:MOST_PAIRS] for line in _reasons(pair, labels[pair[1].case])]
    return [*tables, why, "", *reasons]


def _missing(about: Collected, before: Summary | None, cases: Sequence[str]) -> list[str]:
    against = str(before.iteration) if before and before.iteration else "baseline"
    case = cases[0] if cases else "ID"
    command = shlex.join(["kernbench", "profile", about.task.name, "--case", case, "--against", against])
    missing = f"_Missing: Nsight Compute profiles of both sources; `{command}` creates them._"
    return ["## Nsight Compute, before and after", "", missing, ""]


def _table(pair: tuple[Profile, Profile], names: tuple[str, str], label: str) -> list[str]:
    title = f"## Nsight Compute, before and after ({label})"
    lines = [title, "", entry_text.cells(["", *names, ""]), entry_text.cells(["---", "---:", "---:", "---"])]
    lines += [
        entry_text.cells([item.words, item.before, item.after, item.unit]) for item in profile_evidence.changes(*pair)
    ]
    new = pair[1]
    versions = ", ".join(part for part in (new.gpu, new.ncu and f"ncu {new.ncu}") if part)
    return [*lines, "", *([f"{versions}.", ""] if versions else [])]


def _reasons(pair: tuple[Profile, Profile], label: str) -> list[str]:
    """Counters that improved, then those that got worse; the duration is the effect, not a cause."""
    moved = [
        item
        for item in profile_evidence.changes(*pair)
        if item.ratio is not None and abs(item.ratio - 1) > WORTH_SAYING
    ]
    helped = [item for item in moved if _helps(item)]
    paid = [item for item in moved if item.name in BETTER_UP | BETTER_DOWN and not _helps(item)]
    duration = next((item for item in profile_evidence.changes(*pair) if item.name == "duration_us"), None)
    took = f", {duration.before} -> {duration.after} us" if duration else ""
    lines = [f"{label}{took}:", "", *(f"- {_told(item)}" for item in helped)]
    if not helped:
        lines.append("- no counter improved by more than 3%: this profile does not explain a gain")
    if paid:
        lines.append(f"- at the cost of: {'; '.join(_told(item) for item in paid)}")
    return [*lines, ""]


def _helps(item: Change) -> bool:
    up = (item.ratio or 1.0) > 1
    return item.name in (BETTER_UP if up else BETTER_DOWN)


def _told(item: Change) -> str:
    way = "up" if (item.ratio or 0) > 1 else "down"
    amount = fmt.percent(abs((item.ratio or 1) - 1))
    return f"{item.words} {way} {amount}: {item.before} -> {item.after_with_unit}"
