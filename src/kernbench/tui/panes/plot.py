"""The trajectory: a text plot of the geomean over iterations, with a line for the best so far.

plotext draws axes, ticks and lines; this module chooses the points and the color of each sign. Speedups over another
baseline or on another machine do not share an axis, so only iterations comparable with the newest are drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from importlib import metadata
from itertools import groupby

from kernbench.events import Summary
from kernbench.log.entries.entry_list import EntryList
from kernbench.log.runs import comparison
from kernbench.log.runs.series import Series
from kernbench.tui.text.spans import Span, clip
from kernbench.tui.widgets.row_view import RowView

NEWEST = 200
"""How many iterations are plotted: more would share a cell."""
LEAST_WIDTH, LEAST_HEIGHT = 24, 6
LEAST_SPAN = 0.04
"""The least span of the speedup axis, relative to its middle."""
POINT, WRONG, STALLED = "o", "x", "!"
_STYLES = {POINT: "strong", WRONG: "bad", STALLED: "warn"}
_ASCII = str.maketrans("┌┐└┘─│┤┬├┴┼", "++++-|||+++")


def draw(iterations: Sequence[Summary], width: int, height: int, ascii_only: bool = False) -> list[list[Span]]:
    """Exactly `height` lines, or a sentence if there is nothing to plot."""
    series = iterations.series if isinstance(iterations, EntryList) else None
    alike = _alike(iterations[-NEWEST:], series)
    timed = [item for item in alike if _is_timed(item)]
    if len(timed) < 2:
        return [[(clip(f"a plot needs {_two(timed)}", width), "dim")]]
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return []
    try:
        text = _plotext(alike, timed, width, height - 1, ascii_only)
    except Exception as problem:  # a failing plot must not stop the workbench
        return [[(line, "warn")] for line in textwrap.wrap(_no_plot(problem), width)[:height]]
    left_out = len(iterations[-NEWEST:]) - len(alike)
    return [_legend(alike, left_out, width), *[_spans(line) for line in text.splitlines()]]


def _no_plot(problem: Exception) -> str:
    try:
        version = metadata.version("plotext")
    except metadata.PackageNotFoundError:
        version = "none"
    return f"no plot: needs plotext 5.3, found {version}; pip install 'plotext<6' ({problem})"


def _is_timed(item: Summary) -> bool:
    return item.right and item.geomean is not None and item.complete  # a subset of the cases has another mean


def _alike(newest: Sequence[Summary], series: Series | None) -> list[Summary]:
    """Iterations comparable with the last timed one, and failures, which have no time."""
    last = next((item for item in reversed(newest) if _is_timed(item)), None)
    if last is None:
        return list(newest)
    return [item for item in newest if not _is_timed(item) or _is_alike(item, last, series)]


def _is_alike(item: Summary, last: Summary, series: Series | None) -> bool:
    """Whether it belongs to the current task too. An entry from another machine has only the first digits of the task
    hash, or none, and a run of an older version has the old hash."""
    known = {last.task_hash}
    present = {series.task_hash, *series.old_task_hashes} if series is not None else set[str]()
    known |= present if last.task_hash in present else set()
    same_task = any(name.startswith(item.task_hash) or item.task_hash.startswith(name) for name in known)
    return same_task and comparison.axis_of(item) == comparison.axis_of(last)


def _two(timed: Sequence[Summary]) -> str:
    baseline = timed[0].baseline if timed else ""
    return f"two iterations timed against {baseline}" if baseline else "two timed iterations"


def _plotext(newest: Sequence[Summary], timed: list[Summary], width: int, height: int, ascii_only: bool) -> str:
    import plotext  # imported here: it takes 50 ms

    plotext.clear_figure()
    plotext.plotsize(width, height)
    plotext.theme("clear")
    numbers, best = _best_line(timed)
    if numbers:
        plotext.plot(numbers, best, marker="." if ascii_only else "braille")
    values = [item.geomean or 1.0 for item in timed]
    limits = _limits(values)
    low = limits[0] if limits else min(values)
    for sign, group in _points(newest, low).items():
        if group:
            plotext.scatter([at for at, _ in group], [value for _, value in group], marker=sign)
    ticks = _ticks(newest)
    plotext.xticks(ticks, [f"#{tick}" for tick in ticks])
    plotext.yfrequency(3 if height < 9 else 4)
    if limits:
        plotext.ylim(*limits)
    text: str = plotext.uncolorize(plotext.build())
    return text.translate(_ASCII) if ascii_only else text


def _limits(values: Sequence[float]) -> tuple[float, float] | None:
    """Axis limits for values so close together that noise would look like a cliff; else None."""
    middle = (min(values) + max(values)) / 2
    least = middle * LEAST_SPAN / 2
    return (middle - least, middle + least) if max(values) - middle < least else None


def _best_line(timed: list[Summary]) -> tuple[list[int], list[float]]:
    """Steps: the best geomean known after each iteration."""
    if timed[-1].baseline == "best":  # best's geomean is over another baseline
        return [], []
    numbers: list[int] = []
    best: list[float] = []
    for item, after in zip(timed, comparison.best_levels(timed), strict=True):
        if after is None:
            continue
        # Two points per rise: a step, since a slope would show times that were not measured.
        for step in [best[-1], after] if best and after != best[-1] else [after]:
            numbers.append(item.iteration or 0)
            best.append(step)
    return numbers, best


def _points(newest: Sequence[Summary], low: float) -> dict[str, list[tuple[int, float]]]:
    """The points by sign; a failure has no time and is drawn at the bottom."""
    points: dict[str, list[tuple[int, float]]] = {POINT: [], WRONG: [], STALLED: []}
    for item in newest:
        if not item.right:
            points[WRONG].append((item.iteration or 0, low))
        elif _is_timed(item):
            points[STALLED if item.stalled else POINT].append((item.iteration or 0, item.geomean or 1.0))
    return points


def _ticks(newest: Sequence[Summary]) -> list[int]:
    first, last = newest[0].iteration or 0, newest[-1].iteration or 0
    middle = (first + last) // 2
    return sorted({first, middle, last})


def _legend(newest: Sequence[Summary], left_out: int, width: int) -> list[Span]:
    """As much of the legend as fits."""
    signs: list[list[Span]] = [[(POINT, "strong"), (" geomean  ", "dim"), ("line: best", "accent")]]
    if any(not item.right for item in newest):
        signs.append([("  " + WRONG, "bad"), (" failed", "dim")])
    if any(item.stalled and _is_timed(item) for item in newest):
        signs.append([("  " + STALLED, "warn"), (" stalled", "dim")])
    if left_out:
        signs.append([(f"  {left_out} not comparable", "dim")])
    while len(signs) > 1 and sum(len(text) for sign in signs for text, _ in sign) > width:
        signs.pop()
    return [span for sign in signs for span in sign]


def _spans(line: str) -> list[Span]:
    """Style the axes dim, the best line in color, each point by its meaning; the # of ticks is not a point."""

    def style(character: str) -> str:
        if "\u2800" <= character <= "\u28ff":
            return "accent"
        return _STYLES.get(character, "dim")

    return [("".join(group), name) for name, group in groupby(line.rstrip(), key=style)]


class Plot(RowView, can_focus=False):
    """The plot below the iterations."""

    HEADER = 0
    HAS_CURSOR = False

    def __init__(self, ascii_only: bool) -> None:
        super().__init__(id="plot", ascii_only=ascii_only)
        self._iterations: Sequence[Summary] = ()
        self._drawn: list[list[Span]] = []

    def show(self, iterations: Sequence[Summary]) -> None:
        self._iterations = iterations[-NEWEST:]
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def count(self) -> int:
        return len(self._drawn)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return self._drawn[index]

    def _draw(self) -> None:
        if self.size.area:
            self._drawn = draw(self._iterations, self.line_width, self.size.height, self.ascii_only)
            self.reshape()
