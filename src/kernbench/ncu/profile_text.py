"""A profile as plain text: the pane's summary, the before/after table, the markdown for a pull request.

At most sixty columns by default. An unknown number is a dash; a change needs both numbers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from harness.shared import format as fmt
from kernbench.diagnosis.counters import Facts, Profile, TraceRow, short_name
from kernbench.diagnosis.rules import Diagnosis
from kernbench.ncu.drilldown import HotLine

WIDTH = 60
KB = 1024
"""Of shared memory, as NVIDIA states a block's limit (227 KB); traffic is counted in thousands."""
Value = Callable[[Profile], "float | None"]


def _main(name: str) -> Value:
    def value(profile: Profile) -> float | None:
        found: float | None = getattr(profile.main, name, None) if profile.main else None
        return found

    return value


def _bandwidth(profile: Profile) -> float | None:
    moved, time = profile.total("bytes_moved"), profile.duration_us
    return None if moved is None or not time else moved / time / 1e6


def _stall(profile: Profile) -> float | None:
    return profile.main.stalls.get("long_scoreboard", 0.0) * 100 if profile.main and profile.main.stalls else None


def _spills(profile: Profile) -> float | None:
    return profile.total("spilled")


ROWS: tuple[tuple[str, str, Value, Callable[[float], str]], ...] = (
    ("duration", "us", lambda profile: profile.duration_us, fmt.microseconds),
    ("DRAM", "TB/s", _bandwidth, fmt.tera),
    ("DRAM busy", "%", _main("dram_pct"), fmt.whole),
    ("bytes moved", "MB", lambda profile: _mega(profile.total("bytes_moved")), partial(fmt.fixed, decimals=1)),
    ("SM busy", "%", _main("sm_pct"), fmt.whole),
    ("occupancy", "%", _main("occupancy_pct"), fmt.whole),
    ("max occupancy", "%", _main("possible_pct"), fmt.whole),
    ("registers", "", _main("registers"), fmt.whole),
    ("shared memory", "KB", lambda profile: _kilo(_main("shared_bytes")(profile)), partial(fmt.fixed, decimals=1)),
    ("spill accesses", "M", lambda profile: _mega(_spills(profile)), partial(fmt.fixed, decimals=2)),
    ("instructions", "M", lambda profile: _mega(profile.total("instructions")), partial(fmt.fixed, decimals=2)),
    ("issue slots busy", "%", _main("issue_pct"), fmt.whole),
    ("waiting for memory", "%", _stall, fmt.whole),
    ("kernels", "", lambda profile: float(len(profile.kernels)) or None, fmt.whole),
)
"""Name, unit, value and format of each line of a comparison: sums are over the call, the rest is its main kernel's."""


def summary_lines(
    profile: Profile,
    diagnosis: Diagnosis,
    other: Profile | None = None,
    width: int = WIDTH,
    tried: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[str]:
    """The pane's lines: the diagnosis first, so that a small pane shows it, then the numbers, then what to try.

    With `other`, the numbers of both appear side by side. `tried` has what the logs know of a technique, by its name.
    """
    lines = [_clip(_title(profile), width)]
    lines += textwrap.wrap(f"=> {diagnosis.sentence}", width, subsequent_indent="   ")
    if diagnosis.evidence:
        lines += textwrap.wrap("; ".join(diagnosis.evidence), width, initial_indent="   ", subsequent_indent="   ")
    if not profile.kernels:
        lines += facts_lines(profile.facts, width)
    elif other is not None and other.kernels:
        lines += comparison_lines(other, profile, width)
    else:
        lines += [_clip(line, width) for line in _numbers(profile)]
    for technique in diagnosis.tries:
        lines += textwrap.wrap(f"try {technique.name}: {technique.reason}", width, subsequent_indent="    ")
        for line in tried.get(technique.name, ()):
            lines += textwrap.wrap(line, width, initial_indent="    ", subsequent_indent="      ")
    if profile.skipped:
        rows = f"{fmt.plural(profile.skipped, 'row')} of ncu's output"
        lines.append(_clip(f"{rows} {'was' if profile.skipped == 1 else 'were'} unreadable", width))
    return lines


def comparison_lines(before: Profile, after: Profile, width: int = 80) -> list[str]:
    """Before, after and the change, one number per line."""
    names = (_side(before)[:12], _side(after)[:12])
    lines = [f"{'':<20}{names[0]:>12}{names[1]:>12}{'change':>10}"]
    for name, unit, value, spell in ROWS:
        old, new = value(before), value(after)
        label = f"{name} {unit}".strip()
        shown = [fmt.DASH if item is None else spell(item) for item in (old, new)]
        if shown != [fmt.DASH, fmt.DASH]:
            lines.append(f"{label:<20}{shown[0]:>12}{shown[1]:>12}{_change(old, new):>10}")
    for title, profile in zip(names, (before, after), strict=True):
        lines.append(f"{title}: {_stalls(profile)}")
    return [_clip(line, width) for line in lines]


def markdown(before: Profile, after: Profile) -> str:
    """The comparison as a markdown table."""
    about = after.label or after.case
    lines = [f"| {about} | {_side(before)} | {_side(after)} | change |", "| --- | ---: | ---: | ---: |"]
    for name, unit, value, spell in ROWS:
        old, new = value(before), value(after)
        if old is None and new is None:
            continue
        label = f"{name}, {unit}" if unit else name
        cells = [fmt.DASH if item is None else spell(item) for item in (old, new)]
        lines.append(f"| {label} | {cells[0]} | {cells[1]} | {_change(old, new)} |")
    where = ", ".join(part for part in (after.gpu, f"ncu {after.ncu}" if after.ncu else "") if part)
    return "\n".join([*lines, "", f"One call each, cold caches, clocks not locked ({where})."])


def facts_lines(facts: Sequence[Facts], width: int = WIDTH) -> list[str]:
    """The compiler's facts, without counters."""
    lines = []
    for fact in facts:
        lines.append(f"{fact.name}: {_amount(fact.registers, 'register')}, {_amount(fact.spills, 'spill')},")
        shared = fmt.DASH if fact.shared_bytes is None else f"{fmt.fixed(fact.shared_bytes / KB, 1)} KB"
        lines.append(f"  {shared} shared, {_amount(fact.warps, 'warp')}, {_amount(fact.stages, 'stage')}")
        if fact.occupancy_pct is not None:
            lines.append(f"  max occupancy {fmt.percent(fact.occupancy_pct, of=100)} (limit: {fact.limit})")
    return [_clip(line, width) for line in lines or ["no compiler facts (no Triton kernel was loaded)"]]


def hot_lines(lines: Sequence[HotLine], width: int = 80) -> list[str]:
    """The lines where warps wait, hottest first."""
    if not lines:
        return ["no line was sampled: the kernel has no line info or ended too soon"]
    table = [(f"{line.file}:{line.line}", line) for line in lines]
    room = min(max(len(place) for place, _ in table), 32)
    rows = [f"{'share':>6}  {'stall':<14}{'line':<{room}}"]
    for place, line in table:
        rows.append(f"{fmt.percent(line.share):>6}  {line.stall:<14}{place[-room:]:<{room}}  {line.text}")
    return [_clip(row, width) for row in rows]


def trace_lines(rows: Sequence[TraceRow], width: int = 80) -> list[str]:
    """Kernels, then operators, each with its time and its share of its kind."""
    lines = []
    for kind, title in (("kernel", "kernels, on the GPU"), ("operator", "operators, on the host")):
        part = [row for row in rows if row.kind == kind]
        whole = sum(row.us for row in part)
        if part:
            lines.append(f"{'us':>10}  {'share':>5}  {'calls':>5}  {title}")
        for row in part[:15]:
            name = short_name(row.name) if kind == "kernel" else row.name
            lines.append(f"{fmt.microseconds(row.us):>10}  {fmt.percent(row.us / whole):>5}  {row.count:>5}  {name}")
    return [_clip(line, width) for line in lines or ["the profiler recorded no time in the call"]]


def _numbers(profile: Profile) -> list[str]:
    kernel = profile.main
    assert kernel is not None
    lines = []
    if len(profile.kernels) > 1:
        lines.append(f"{len(profile.kernels)} kernels, {_time(profile.duration_us)}; {fmt.percent(profile.share)} in:")
    clock = fmt.DASH if kernel.sm_hz is None else f"{fmt.whole(kernel.sm_hz / 1e6)} MHz"
    speed = fmt.terabytes(kernel.bandwidth)
    lines.append(f"{kernel.name}  {_time(kernel.duration_us)}  {_count(kernel.grid)} x {_count(kernel.block)}  {clock}")
    lines.append(f"DRAM       {_percent(kernel.dram_pct):<7}{speed:<14}L2 hits {_percent(kernel.l2_hit_pct)}")
    lines.append(f"moved      read {_bytes(kernel.bytes_read)}, wrote {_bytes(kernel.bytes_written)}")
    issue = f"issue {_percent(kernel.issue_pct)}"
    lines.append(f"SM         {_percent(kernel.sm_pct):<7}{issue:<14}L1 {_percent(kernel.l1_pct)}")
    limit = f"  limit: {', '.join(kernel.limits)}" if kernel.limits else ""
    lines.append(f"occupancy  {_percent(kernel.occupancy_pct)} of {_percent(kernel.possible_pct)}{limit}")
    lines.append(
        f"registers  {_count(kernel.registers):<7}{'shared ' + _bytes(kernel.shared_bytes, KB):<18}"
        f"spills {_count(kernel.spilled)}"
    )
    ready = fmt.fixed(kernel.eligible_warps, 2)
    lines.append(f"instr.     {_count(kernel.instructions)}, {ready} warps ready per cycle")
    return [*lines, f"stalls     {_stalls(profile)}"]


def _title(profile: Profile) -> str:
    tool = f"ncu {profile.ncu}{' full' if profile.full else ''}" if profile.ncu else "no counters"
    return "  ".join(part for part in (profile.label or profile.case, profile.side, tool, profile.gpu) if part)


def _side(profile: Profile) -> str:
    return profile.side if profile.side != "solution" else "now"


def _stalls(profile: Profile) -> str:
    top = profile.main.top_stalls if profile.main else []
    words = [
        (name.replace("_", " ").replace("scoreboard", "sb").replace("throttle", "thr."), share) for name, share in top
    ]
    return ", ".join(f"{name} {fmt.percent(share)}" for name, share in words) or fmt.DASH


def _change(old: float | None, new: float | None) -> str:
    if old is None or new is None or (old == 0 and new == 0):
        return "=" if old == new and old is not None else fmt.DASH
    if old == 0:
        return "new"
    return "=" if abs(new / old - 1) < 0.005 else fmt.change(new / old)


def _kilo(value: float | None) -> float | None:
    return None if value is None else value / KB


def _mega(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def _time(value: float | None) -> str:
    return fmt.DASH if value is None else f"{fmt.microseconds(value)} us"


def _percent(value: float | None) -> str:
    return fmt.percent(value, of=100)


def _bytes(value: float | None, kilo: float = 1e3) -> str:
    if value is None:
        return fmt.DASH
    for size, unit in ((kilo**3, "GB"), (kilo**2, "MB"), (kilo, "KB")):
        if value >= size:
            return f"{fmt.fixed(value / size, 1)} {unit}"
    return f"{fmt.whole(value)} B"


def _count(value: float | None) -> str:
    if value is None:
        return fmt.DASH
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{fmt.fixed(value / size, 1)} {unit}"
    return fmt.whole(value)


def _amount(value: int | None, noun: str) -> str:
    return f"{fmt.DASH} {noun}s" if value is None else fmt.plural(value, noun)


def _clip(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"
