"""Trajectory and heatmap as SVG text: no dependencies, no requests, readable on light and dark, all text escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from harness.shared import format as fmt
from kernbench import render
from kernbench.events import Summary
from kernbench.export.collect import name_of
from kernbench.log.entries import entry_text
from kernbench.log.runs import comparison
from kernbench.machine.plain_text import plain

STYLE = """
.kb{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;--ink:#1f2933;--soft:#7b8794;--line:#e1e5ea;
--best:#0b7285;--dot:#9aa5b1;--bad:#c92a2a}
@media(prefers-color-scheme:dark){.kb{--ink:#e4e7eb;--soft:#9aa5b1;--line:#323f4b;
--best:#3bc9db;--dot:#616e7c;--bad:#ff8787}}
.kb text{fill:var(--soft)}.kb .ink{fill:var(--ink)}.kb .grid{stroke:var(--line);fill:none}
.kb .one{stroke:var(--soft);stroke-dasharray:4 3;fill:none}.kb .step{stroke:var(--best);stroke-width:2;fill:none}
.kb .whisker{stroke:var(--dot);fill:none}.kb .dot{fill:var(--dot)}.kb .top{fill:var(--best)}
.kb .wrong{stroke:var(--bad);stroke-width:1.5;fill:none}.kb .badcell{fill:var(--bad)}
.kb .none{fill:none;stroke:var(--line)}.kb .in{text-anchor:middle;font-size:11px}
"""
TICKS = (0.125, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 300, 56, 20, 14, 40
MOST_TITLES = 1500
MOST_COLUMNS = 160
SLOW, EVEN, FAST = (217, 115, 13), (236, 239, 242), (11, 114, 133)


@dataclass(frozen=True)
class Scale:
    """Maps speedups to pixels by their logarithm, and indices to positions from left to right."""

    low: float
    high: float
    count: int

    def y(self, speedup: float) -> float:
        part = (math.log(speedup) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def x(self, index: int) -> float:
        room = WIDTH - LEFT - RIGHT
        return LEFT + room / 2 if self.count == 1 else LEFT + 12 + (room - 24) * index / (self.count - 1)


def trajectory(entries: Sequence[Summary]) -> str:
    """Geomean of every iteration with its interval, the best so far as a line, wrong ones as crosses at the bottom.

    A run of only some cases has a different mean and is left out, unless there is nothing else.
    """
    entries = [item for item in entries if item.complete or not item.right] or entries
    values = [value for item in entries for value in (item.low, item.high) if value]
    low, high = min([*values, 1.0]) / 1.05, max([*values, 1.0]) * 1.05
    scale = Scale(low, high, len(entries))
    parts = [*_frame(scale), *_numbers(scale, entries), _whiskers(scale, entries), _steps(scale, entries)]
    parts += [_mark(scale, index, item, len(entries) <= MOST_TITLES) for index, item in enumerate(entries)]
    return _svg(HEIGHT, "Speedup over the baseline, by iteration", parts)


def heatmap(
    entries: Sequence[Summary],
    labels: Mapping[str, str],
    cells: Sequence[Mapping[str, tuple[str, float | None]]],
) -> str:
    """Cases over iterations; `cells` holds for each of these status and speedup by case."""
    left, row, head = 190, 22, 26
    cell = min(56.0, (WIDTH - left - RIGHT) / max(len(entries), 1))
    height = head + row * len(labels) + 44
    parts = [_column_names(entries, left, cell, head)]
    for place, (case, label) in enumerate(labels.items()):
        top = head + place * row
        parts.append(f'<text class="ink" x="{left - 10}" y="{top + 15}" text-anchor="end">{_short(label)}</text>')
        for index, item in enumerate(entries):
            status, speedup = cells[index].get(case, ("", None))
            parts.append(_cell(left + index * cell, top, cell, row, f"{name_of(item)} {label}", status, speedup))
    parts.append(_legend(left, height - 30))
    return _svg(height, "Speedup of each case over the baseline, by iteration", parts)


def columns(entries: Sequence[Summary]) -> list[Summary]:
    """At most as many as fit: the newest of each group of neighbors."""
    size = math.ceil(len(entries) / MOST_COLUMNS) or 1
    groups = [entries[max(end - size, 0) : end] for end in range(len(entries), 0, -size)]
    return [group[-1] for group in reversed(groups)]


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    body = plain("\n".join(part for part in parts if part))
    return (
        f'<svg class="kb" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}"><style>{STYLE}</style><title>{escape(title)}</title>\n{body}\n</svg>'
    )


def _frame(scale: Scale) -> list[str]:
    shown = [1.0]
    for tick in sorted(TICKS, key=lambda value: abs(math.log(value))):
        if scale.low <= tick <= scale.high and all(abs(scale.y(tick) - scale.y(other)) > 26 for other in shown):
            shown.append(tick)
    lines = []
    for tick in shown:
        y, kind = scale.y(tick), "one" if tick == 1.0 else "grid"
        lines.append(f'<path class="{kind}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{fmt.plain(tick)}x</text>')
    return lines


def _numbers(scale: Scale, entries: Sequence[Summary]) -> list[str]:
    step = max(1, math.ceil(len(entries) / 16))
    return [
        f'<text x="{scale.x(index):.1f}" y="{HEIGHT - BOTTOM + 22}" text-anchor="middle">{escape(name_of(item))}</text>'
        for index, item in enumerate(entries)
        if index % step == 0 or (index == len(entries) - 1 and index % step > step / 2)
    ]


def _whiskers(scale: Scale, entries: Sequence[Summary]) -> str:
    lines = [
        f"M{scale.x(index):.1f} {scale.y(item.low):.1f}V{scale.y(item.high):.1f}"
        for index, item in enumerate(entries)
        if item.right and item.low and item.high
    ]
    return f'<path class="whisker" d="{"".join(lines)}"/>' if lines else ""


def _steps(scale: Scale, entries: Sequence[Summary]) -> str:
    """The best so far, as measured when it took over, from the first best to the right edge."""
    levels = [(index, value) for index, value in enumerate(comparison.best_levels(entries)) if value is not None]
    if not levels:
        return ""
    rises = [step for step, before in zip(levels[1:], levels, strict=False) if step[1] != before[1]]
    first, *later = [levels[0], *rises]
    path = f"M{scale.x(first[0]):.1f} {scale.y(first[1]):.1f}"
    path += "".join(f"H{scale.x(index):.1f}V{scale.y(value):.1f}" for index, value in later)
    return f'<path class="step" d="{path}H{WIDTH - RIGHT}"/>'


def _mark(scale: Scale, index: int, item: Summary, titled: bool) -> str:
    words = " ".join(item.hypothesis.split())
    about = f"{name_of(item)} {entry_text.speed(item)} {render.outcome(item)}  {words}"
    title = f"<title>{escape(about)}</title>" if titled else ""
    x = scale.x(index)
    if item.geomean is None or not item.right:
        y = HEIGHT - BOTTOM
        return f'<path class="wrong" d="M{x - 4:.1f} {y - 4}l8 8m0 -8l-8 8">{title}</path>'
    kind, radius = ("top", 5.0) if item.holds else ("dot", 4.0)
    radius = radius if scale.count <= 200 else radius / 2
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{scale.y(item.geomean):.1f}" r="{radius:g}">{title}</circle>'


def _column_names(entries: Sequence[Summary], left: int, cell: float, head: int) -> str:
    step = max(1, math.ceil((12 + 8 * len(name_of(entries[-1]))) / cell))
    return "".join(
        f'<text class="in" x="{left + (index + 0.5) * cell:.1f}" y="{head - 10}">{escape(name_of(item))}</text>'
        for index, item in enumerate(entries)
        if index % step == 0
    )


def _cell(x: float, y: float, width: float, height: float, name: str, status: str, speedup: float | None) -> str:
    gap = 2 if width > 8 else 0
    place = f'x="{x:.1f}" y="{y}" width="{max(width - gap, 0.5):.1f}" height="{height - 2}" rx="{gap}"'
    if speedup is not None:
        title = f"<title>{escape(name)}: {fmt.exact(speedup)}</title>"
        shade, ink = _shade(speedup)
        number = fmt.fixed(speedup, 2)
        text = f'<text class="in" x="{x + width / 2 - 1:.1f}" y="{y + 14}" style="fill:{ink}">{number}</text>'
        return f'<g>{title}<rect {place} fill="{shade}"/>{text if width >= 34 else ""}</g>'
    bad = status not in ("", "ok", "skipped", "interpreted")
    cross = f'<text class="in" x="{x + width / 2 - 1:.1f}" y="{y + 14}" style="fill:#fff">×</text>' if bad else ""
    box = f'<rect {place} class="{"badcell" if bad else "none"}"/>'
    return f"<g><title>{escape(name)}: {escape(status or 'not run')}</title>{box}{cross if width >= 12 else ''}</g>"


def _shade(speedup: float) -> tuple[str, str]:
    """Color of a cell and of its number: orange for slower, teal for faster, saturated at 0.5x and 2x."""
    part = max(-1.0, min(1.0, math.log2(speedup)))
    end = FAST if part > 0 else SLOW
    mixed = [round(middle + (far - middle) * abs(part)) for middle, far in zip(EVEN, end, strict=True)]
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})", "#fff" if abs(part) > 0.55 else "#1f2933"


def _legend(left: int, y: int) -> str:
    steps = [2 ** (place / 6 - 1) for place in range(13)]
    boxes = [
        f'<rect x="{left + place * 22}" y="{y}" width="22" height="8" fill="{_shade(value)[0]}"/>'
        for place, value in enumerate(steps)
    ]
    names = [(0.0, "start", "0.5x or less"), (6.5, "middle", "1x"), (13.0, "end", "2x or more")]
    texts = [
        f'<text x="{left + place * 22:g}" y="{y + 24}" text-anchor="{anchor}">{name}</text>'
        for place, anchor, name in names
    ]
    return "".join([*boxes, *texts])


def _short(label: str) -> str:
    text = label if len(label) <= 28 else label[:27] + "…"
    return escape(text)
