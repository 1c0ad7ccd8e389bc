"""The trajectory as text: the geomean over iterations with its interval, the best so far, and a line at 1x.

Speedups over another baseline or on another machine do not share an axis, so only iterations comparable with the newest
have a point; if nothing is, those of the series before it. The others, and failures, have a sign below the axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from harness.shared import format as fmt
from kernbench.events import Summary
from kernbench.log.entries.entry_list import EntryList
from kernbench.log.runs import comparison
from kernbench.log.runs.series import Series
from kernbench.tui.text.spans import Span, clip

NEWEST = 200
"""How many iterations are plotted: more would share a cell."""
LEAST_WIDTH, LEAST_HEIGHT, LEAST_POINTS = 24, 6, 2
LEAST_SPAN = 0.04
"""The least span of the speedup axis, relative to its middle: noise must not look like a cliff."""
LABEL = 7
"""Cells of a tick's label and the axis."""
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Steps between ticks, times a power of ten."""
POINT, OTHER_MACHINE, STALLED, WRONG, ELSEWHERE = "o", "@", "!", "x", "+"
STYLES = {POINT: "strong", OTHER_MACHINE: "accent", STALLED: "warn", WRONG: "bad", "─": "accent"}
ASCII = str.maketrans("─│╌┤┬└", "-|.|+`")
Grid = list[list[str]]


def comparable(iterations: Sequence[Summary]) -> list[Summary]:
    """The newest iterations that share a plot, and failures; one that was pulled and timed again here is that run."""
    newest = [_here(item) for item in iterations[-NEWEST:]]
    return [item for item in _alike(newest, _series(iterations)) if item.complete]


def is_plotted(iterations: Sequence[Summary]) -> bool:
    return sum(map(_is_timed, comparable(iterations))) >= LEAST_POINTS


def draw(iterations: Sequence[Summary], width: int, height: int, ascii_only: bool = False) -> list[list[Span]]:
    """Exactly `height` lines, a sentence if there is nothing to plot, or nothing if there is no room."""
    newest = [_here(item) for item in iterations[-NEWEST:]]
    alike = {id(item) for item in _alike(newest, _series(iterations))}
    timed = [item for item in newest if id(item) in alike and _is_timed(item)]
    if len(timed) < LEAST_POINTS:
        return [[(clip(f"a plot needs {_two(timed)}", width), "dim")]]
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return []
    columns = _columns(newest, width - LABEL)
    low, high = limits(timed)
    grid = _plotted(timed, columns, width - LABEL, height - 4, low, high)
    ticks = _labels(low, high, height - 4)
    lines = [_legend(newest, alike, width)]
    for row, cells in enumerate(grid):
        label = ticks.get(row, "")
        lines.append([(f"{clip(label, LABEL - 1):>{LABEL - 1}}{'┤' if label else '│'}", "dim"), *_spans(cells)])
    lines.append([(" " * LABEL, ""), *_spans(_strip(newest, alike, columns, width - LABEL))])
    lines += [[(text, "dim")] for text in _axis(newest, columns, width)]
    return [[(_in_ascii(text), style) for text, style in line] for line in lines] if ascii_only else lines


def limits(timed: Sequence[Summary]) -> tuple[float, float]:
    """The ends of the axis: all points, and their intervals as far as twice the points' span; 1x if it is near."""
    values = [item.geomean or 1.0 for item in timed]
    low, high = min(values), max(values)
    span = max(high - low, LEAST_SPAN * (high + low) / 2)
    middle = (high + low) / 2
    low, high = min(low, middle - span / 2), max(high, middle + span / 2)
    ends = [end for item in timed for end in (item.low, item.high) if end is not None]
    low, high = max(min([low, *ends]), low - span / 2), min(max([high, *ends]), high + span / 2)
    return (min(low, 1.0) if low - 1.0 < span else low), (max(high, 1.0) if 1.0 - high < span else high)


def ticks_of(low: float, high: float, most: int) -> list[float]:
    """Round values between two, about as many as asked for."""
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in ROUND if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 6) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _row(value: float, low: float, high: float, rows: int) -> int:
    share = (min(max(value, low), high) - low) / (high - low)
    return rows - 1 - round(share * (rows - 1))


def _plotted(timed: Sequence[Summary], columns: dict[int, int], width: int, rows: int, low: float, high: float) -> Grid:
    grid: Grid = [[" "] * width for _ in range(rows)]
    if low <= 1.0 <= high:
        grid[_row(1.0, low, high, rows)] = ["╌"] * width
    _step_line(grid, timed, columns, low, high)
    for item in timed:
        at = columns[id(item)]
        if item.low is not None and item.high is not None:
            for row in range(_row(item.high, low, high, rows), _row(item.low, low, high, rows) + 1):
                grid[row][at] = "│" if grid[row][at] != "─" else "─"
        grid[_row(item.geomean or 1.0, low, high, rows)][at] = _sign(item)
    return grid


def _sign(item: Summary) -> str:
    return OTHER_MACHINE if _is_elsewhere(item) else STALLED if item.stalled else POINT


def _step_line(grid: Grid, timed: Sequence[Summary], columns: dict[int, int], low: float, high: float) -> None:
    """The best geomean known after each iteration, until the next one."""
    if timed[-1].baseline == "best":  # best's geomean is over another baseline
        return
    levels = comparison.best_levels(timed)
    ends = [*(columns[id(item)] for item in timed[1:]), len(grid[0])]
    for item, level, end in zip(timed, levels, ends, strict=True):
        if level is not None and low <= level <= high:
            row = grid[_row(level, low, high, len(grid))]
            row[columns[id(item)] : end] = ["─"] * (end - columns[id(item)])


def _columns(newest: Sequence[Summary], width: int) -> dict[int, int]:
    """Each iteration's column, by identity; the last one does not touch the frame."""
    last = max(len(newest) - 1, 1)
    return {id(item): round(index * (width - 2) / last) for index, item in enumerate(newest)}


def _strip(newest: Sequence[Summary], alike: set[int], columns: dict[int, int], width: int) -> list[str]:
    """Below the axis: failures, and iterations that have no place on it."""
    cells = [" "] * width
    for item in newest:
        if not item.right:
            cells[columns[id(item)]] = WRONG
        elif id(item) not in alike and cells[columns[id(item)]] != WRONG:
            cells[columns[id(item)]] = ELSEWHERE
    return cells


def _labels(low: float, high: float, rows: int) -> dict[int, str]:
    """By row; where two would share one, the first."""
    found: dict[int, str] = {}
    values = ticks_of(low, high, 3 if rows < 9 else 5)
    decimals = max((len(fmt.plain(value).partition(".")[2]) for value in values), default=0)
    for value in values:
        found.setdefault(_row(value, low, high, rows), f"{fmt.fixed(value, decimals)}x")
    return found


def _axis(newest: Sequence[Summary], columns: dict[int, int], width: int) -> list[str]:
    """The line below, and the numbers of the first, the middle and the last iteration."""
    shown = {0, len(newest) // 2, len(newest) - 1}
    line, text = ["─"] * (width - LABEL), [" "] * (width - LABEL)
    for index in sorted(shown):
        at, name = columns[id(newest[index])], f"#{newest[index].iteration or 0}"
        line[at] = "┬"
        begin = min(max(at - len(name) // 2, 0), len(text) - len(name))
        if all(cell == " " for cell in text[max(begin - 1, 0) : begin + len(name) + 1]):
            text[begin : begin + len(name)] = name
    return [" " * (LABEL - 1) + "└" + "".join(line), " " * LABEL + "".join(text)]


def _legend(newest: Sequence[Summary], alike: set[int], width: int) -> list[Span]:
    """As much of the legend as fits."""
    signs: list[list[Span]] = [[(POINT, "strong"), (" geomean  ", "dim"), ("─ best", "accent")]]
    if any(_is_timed(item) and id(item) in alike and _is_elsewhere(item) for item in newest):
        signs.append([("  " + OTHER_MACHINE, "accent"), (" other machine", "dim")])
    if any(not item.right for item in newest):
        signs.append([("  " + WRONG, "bad"), (" failed", "dim")])
    if any(item.right and id(item) not in alike for item in newest):
        signs.append([("  " + ELSEWHERE, "dim"), (" not comparable", "dim")])
    if any(item.stalled and _is_timed(item) and id(item) in alike for item in newest):
        signs.append([("  " + STALLED, "warn"), (" stalled", "dim")])
    while len(signs) > 1 and sum(len(text) for sign in signs for text, _ in sign) > width:
        signs.pop()
    return [span for sign in signs for span in sign]


def _spans(cells: Sequence[str]) -> list[Span]:
    text = "".join(cells).rstrip()
    return [("".join(group), style) for style, group in groupby(text, key=lambda sign: STYLES.get(sign, "dim"))]


def _in_ascii(text: str) -> str:
    return text.translate(ASCII)


def _is_timed(item: Summary) -> bool:
    return item.right and item.geomean is not None and item.complete  # a subset of the cases has another mean


def _series(iterations: Sequence[Summary]) -> Series | None:
    return iterations.series if isinstance(iterations, EntryList) else None


def _here(item: Summary) -> Summary:
    """As timed on this machine, if it was; a pulled entry's own speedup is another machine's."""
    run = item.local_run
    return item if run is None or run is item else replace(run, iteration=item.iteration)


def _is_elsewhere(item: Summary) -> bool:
    return item.local_run is None


def _alike(newest: Sequence[Summary], series: Series | None) -> list[Summary]:
    """Iterations that share a plot, and those without a time."""
    timed = [item for item in newest if _is_timed(item)]
    if not timed:
        return list(newest)
    last = comparison.newest_of_plot(timed, lambda item, other: _is_alike(item, other, series))
    return [item for item in newest if not _is_timed(item) or _is_alike(item, last, series)]


def _is_alike(item: Summary, last: Summary, series: Series | None) -> bool:
    """Whether it belongs to the same task too; a run of an older version has the old hash of it."""
    known = {last.task_hash}
    present = {series.task_hash, *series.old_task_hashes} if series is not None else set[str]()
    known |= present if last.task_hash in present else set()
    same_task = any(comparison.is_same_task(name, item.task_hash) for name in known)
    return same_task and comparison.axis_of(item) == comparison.axis_of(last)


def _two(timed: Sequence[Summary]) -> str:
    baseline = timed[0].baseline if timed else ""
    return f"two iterations timed against {baseline}" if baseline else "two timed iterations"
