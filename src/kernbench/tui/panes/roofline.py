"""All rows by the size of their inputs: how near each comes to its roof, or its speedup where no roof is known.

Each row is a point in the colors of its verdict, with its name where there is room.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from harness.shared import format as fmt
from harness.shared.results import CaseResult, InputForm
from kernbench.tui.panes.trajectory import LABEL, LEAST_HEIGHT, LEAST_WIDTH, ticks_of
from kernbench.tui.state.board import Row
from kernbench.tui.text.spans import Span, clean, clip

SIGNS = {"faster": ("▲", "faster"), "slower": ("▼", "slower"), "unclear": ("?", "warn")}
OTHER = ("o", "")
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
ASCII = str.maketrans("▲▼─│╌┤┬└", "^v-|.|+`")
MARGIN = 0.05
"""Of the axis of sizes, on either side of the points."""
Point = tuple[float, float, Row]
"""Bytes, share or speedup, and the row."""
Grid = list[list[Span]]


def draw(rows: Sequence[Row], width: int, height: int, ascii_only: bool = False) -> list[list[Span]]:
    """Exactly `height` lines, a sentence if there is nothing to plot, or nothing if there is no room."""
    points, has_roof = points_of(rows)
    if not points:
        return [[(clip("no row has been timed yet", width), "dim")]]
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return []
    high = max([1.0, *(value for _, value, _ in points)])
    first, last = _ends([size for size, _, _ in points])
    grid: Grid = [[(" ", "")] * (width - LABEL) for _ in range(height - 3)]
    grid[_line(1.0, high, len(grid))] = [("╌", "dim")] * (width - LABEL)
    _place(grid, points, high, first, last)
    lines = [_title(has_roof, width)]
    ticks = {_line(value, high, len(grid)): value for value in ticks_of(0.0, high, 4)}
    for index, cells in enumerate(grid):
        label = (fmt.percent(ticks[index]) if has_roof else fmt.times(ticks[index])) if index in ticks else ""
        lines.append([(f"{label:>{LABEL - 1}}{'┤' if label else '│'}", "dim"), *_merged(cells)])
    lines += [[(text, "dim")] for text in _axis(first, last, width)]
    return [[(text.translate(ASCII), style) for text, style in line] for line in lines] if ascii_only else lines


def points_of(rows: Sequence[Row]) -> tuple[list[Point], bool]:
    """Of the rows with a size; whether they are shares of a roof."""
    timed = [(size, row.result, row) for row in rows if row.result and (size := bytes_of(row.result.inputs))]
    roofs = [(size, result.roofline, row) for size, result, row in timed if result.roofline is not None]
    return roofs or [(size, result.speedup, row) for size, result, row in timed if result.speedup], bool(roofs)


def bytes_of(inputs: Sequence[InputForm]) -> float:
    """Of all tensors; zero if there are none."""
    return float(sum(math.prod(form.shape) * _item(form.dtype or "") for form in inputs if form.shape is not None))


def _item(dtype: str) -> float:
    """Bytes of an element: the first number in a dtype's name counts its bits."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) / 8 if bits else 1.0


def size(count: float) -> str:
    """`1.5 MB`, `10 kB`."""
    least, unit = next(((least, unit) for least, unit in UNITS if count >= least), UNITS[-1])
    return f"{fmt.plain(round(count / least, 1))} {unit}"


def _ends(sizes: Sequence[float]) -> tuple[float, float]:
    """A little beyond the smallest and the largest, a factor of ten apart at least."""
    least, most = math.log10(min(sizes)), math.log10(max(sizes))
    margin = max((most - least) * MARGIN, (1 - most + least) / 2)
    return 10 ** (least - margin), 10 ** (most + margin)


def _line(value: float, high: float, lines: int) -> int:
    return lines - 1 - round(min(value / high, 1.0) * (lines - 1))


def _column(count: float, first: float, last: float, cells: int) -> int:
    return round((math.log10(count) - math.log10(first)) / (math.log10(last) - math.log10(first)) * (cells - 1))


def _place(grid: Grid, points: Sequence[Point], high: float, first: float, last: float) -> None:
    """The points, then their names from the top on, each next to its point if the cells are free.

    Rows that share a cell have the sign and the name of the first.
    """
    cells = len(grid[0])
    places: dict[tuple[int, int], list[Row]] = {}
    for count, value, row in points:
        place = _line(value, high, len(grid)), _column(count, first, last, cells)
        places.setdefault(place, []).append(row)
    for (line, column), rows in places.items():
        grid[line][column] = SIGNS.get(_verdict(rows[0].result), OTHER)
    for (line, column), rows in sorted(places.items(), key=lambda item: item[0]):
        more = f"+{len(rows) - 1} " if len(rows) > 1 else ""
        name = f" {clean(rows[0].case.label)} {more}"
        for begin in (column + 1, column - len(name)):
            wanted = grid[line][begin : begin + len(name)] if begin >= 0 else []
            if len(wanted) == len(name) and all(sign in " ╌" for sign, _ in wanted):
                grid[line][begin : begin + len(name)] = [(sign, "dim") for sign in name]
                break


def _verdict(result: CaseResult | None) -> str:
    return (result.verdict if result else None) or ""


def _title(has_roof: bool, width: int) -> list[Span]:
    said = "share of the copy bandwidth or nearer bound" if has_roof else "speedup over the baseline"
    signs: list[Span] = []
    for word, (sign, style) in SIGNS.items():
        signs += [(f"  {sign}", style), (f" {word}", "dim")]
    forms: list[list[Span]] = [
        [(f"{said}, by size of the inputs", "dim"), *signs],
        [(f"{said.partition(' or')[0]} by size", "dim"), *signs],
        [(f"{said.partition(' or')[0]} by size", "dim")],
    ]
    fitting = (form for form in forms if sum(len(text) for text, _ in form) <= width)
    return next(fitting, [(clip(forms[-1][0][0], width), "dim")])


def _axis(first: float, last: float, width: int) -> list[str]:
    """The line below, and round sizes as many as fit, powers of ten first."""
    cells = width - LABEL
    line, text = ["─"] * cells, [" "] * cells
    powers = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
    for count in (factor * 10.0**power for factor in (1, 3) for power in powers):
        if not first <= count <= last:
            continue
        at, name = _column(count, first, last, cells), size(count)
        begin = min(max(at - len(name) // 2, 0), cells - len(name))
        if all(cell == " " for cell in text[max(begin - 2, 0) : begin + len(name) + 2]):
            text[begin : begin + len(name)] = name
            line[at] = "┬"
    return [" " * (LABEL - 1) + "└" + "".join(line), " " * LABEL + "".join(text)]


def _merged(cells: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for sign, style in cells:
        if found and found[-1][1] == style:
            found[-1] = (found[-1][0] + sign, style)
        else:
            found.append((sign, style))
    return found
