"""The results table as text: the columns that fit a width, and the rows.

The case and its verdict always show; other columns are added in order of importance while they fit, whether or not they
have something to show yet. A row without times shows the reason in their place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.shared import format as fmt
from harness.shared.results import CaseResult, Ratio, WallTime
from kernbench import render
from kernbench.tui.state.board import GridCount, Row
from kernbench.tui.text import failure_text
from kernbench.tui.text.spans import Span, clean, clip, pad, pad_name, spell

GAP = "  "
SHORTEST_CASE, LONGEST_LABEL = 10, 24
IDS_FROM = 100
"""Cells from which the table may show case ids; hints and status lines use labels."""
FINDINGS_LEAST = 14
HALF_BAR = 7
WORD = 7
"""Cells of `crashed` and `timeout`, so that the sentences after the status words line up. Only `build error` is longer:
it is the status of every row or of none."""


@dataclass(frozen=True)
class Column:
    name: str
    title: str
    width: int
    right: bool = False


_RATIO = Column("ratio", "speedup", 7, right=True)
_BEST = Column("best", "vs best", 16)
_SPEEDUP = Column("speedup", "speedup", 15)
_TIMED = (
    Column("verdict", "verdict", 9),
    _SPEEDUP,
    Column("best", "vs best", 8),
    Column("now", "now us", 7, right=True),
    Column("base", "base us", 7, right=True),
    Column("check", "check", 5),
    Column("roof", render.ROOF, 8, right=True),
    _BEST,
    Column("error", "error", 8, right=True),
    Column("findings", "findings", FINDINGS_LEAST),
    Column("bar", "slower | faster", 2 * HALF_BAR + 1),
    Column("dtype", "dtype", 8),
    Column("models", "models", 12),
    replace(_SPEEDUP, width=18),
    Column("last", "vs last", 7, right=True),
)
"""In order of importance; a column that is there already grows to its second width: `vs best` for its word, the speedup
for any interval. `vs last` is the first to go."""
_WALL_TITLES = {"base": "base us", "now": "now us", "ratio": "wall", "speedup": "wall speedup", "verdict": "on device"}
_CHECKED = (
    Column("verdict", "verdict", 9),
    Column("check", "check", 5),
    Column("error", "error", 8, right=True),
    Column("bound", "allowed", 8, right=True),
    Column("findings", "findings", FINDINGS_LEAST),
)
_PLACES = tuple("models dtype base now ratio speedup verdict bar check roof best last error bound findings".split())


@dataclass(frozen=True)
class Table:
    """The columns chosen for one width."""

    case: int
    """Cells for the case's name."""
    columns: tuple[Column, ...]
    rest: int
    """Cells after the case's name, where a sentence fits."""
    by_id: bool = False
    """Shows ids instead of labels."""
    wall: bool = False
    """Shows wall time instead of device time."""
    bar_most: float = 2.0
    """The speedup or slowdown that fills half a bar."""

    @property
    def has_words(self) -> bool:
        """Whether `vs best` has room for its verdict's word."""
        return _BEST in self.columns


def choose(
    width: int,
    rows: Sequence[Row],
    interpreted: bool,
    wall: bool = False,
    has_roof: bool = True,
) -> Table:
    """The columns for a line of `width` cells.

    They depend on the task and the width alone, so that they stay where they are from run to run. Rows of a grid, which
    show only while they fail, do not count.
    """
    cases = [row.case for row in rows if row.case.kind != "check"] or [row.case for row in rows]
    label = min(max([len(case.label) for case in cases], default=0), LONGEST_LABEL)
    case = max(label, SHORTEST_CASE)
    shown = {"dtype": any("dtype" in case.axes for case in cases), "models": any(case.models for case in cases)}
    shown["roof"] = has_roof
    chosen: dict[str, Column] = {}
    left, dropped = width - case, False
    for column in _CHECKED if interpreted else _TIMED:
        if not shown.get(column.name, True) or (column.name == "last" and dropped):
            continue
        if column is _SPEEDUP and left < column.width + len(GAP):
            column = _RATIO
        known = chosen.get(column.name)
        more = column.width - known.width if known else column.width + len(GAP)
        if more > left:
            dropped = True
            continue
        chosen[column.name] = column
        left -= more
    columns = [_titled(column, rows, wall) for column in chosen.values()]
    columns.sort(key=lambda column: _PLACES.index(column.name))
    longest_id = max([len(case.id) for case in cases], default=0)
    by_id = width >= IDS_FROM and longest_id <= case + left
    grown = min(left, max(longest_id - case, 0) if by_id else max(label - case, 0))
    if columns and columns[-1].name == "findings":
        last = columns.pop()
        columns.append(replace(last, width=last.width + left - grown))
    return Table(case + grown, tuple(columns), max(width - case - grown, 0), by_id, wall, _bar_most(rows))


def _titled(column: Column, rows: Sequence[Row], wall: bool) -> Column:
    """The roof's column names the bound if all rows have the same."""
    if column.name == "roof":
        return replace(column, title=render.roof_title([row.result for row in rows if row.result is not None]))
    return replace(column, title=_WALL_TITLES.get(column.name, column.title)) if wall else column


def _bar_most(rows: Sequence[Row]) -> float:
    """A power of two, so that the scale seldom changes."""
    speedups = [row.result.speedup for row in rows if row.result is not None and row.result.speedup]
    farthest = max((abs(math.log2(speedup)) for speedup in speedups), default=0.0)
    return float(2 ** max(math.ceil(farthest), 1))


def header(table: Table) -> list[Span]:
    titles = [pad("case", table.case)] + [pad(column.title, column.width, column.right) for column in table.columns]
    return [(GAP.join(titles), "head")]


def line(row: Row, table: Table, ascii_only: bool) -> list[Span]:
    """One row, dimmed while it is older than the source."""
    if row.case.kind == "check" and row.result is not None and row.result.failed:
        grown = max(min(LONGEST_LABEL, table.rest // 3) - table.case, 0)  # its sentence needs no columns
        table = replace(table, case=table.case + grown, rest=table.rest - grown)
    name = clean(row.case.id if table.by_id else row.case.label)
    spans = [(pad_name(name, table.case), ""), *_values(row, table, ascii_only)]
    return spans if row.fresh else [(text, "dim") for text, _ in spans]


def grid_line(grid: GridCount) -> list[Span]:
    if grid.landed < grid.total and grid.fresh:
        return [(f"grid: {grid.right}/{grid.total} passed so far", "dim")]
    tried = grid.total - grid.skipped
    words = [f"{grid.right}/{tried} passed"] if tried else []
    words += [f"{grid.skipped} not run"] if grid.skipped else []
    return [(f"grid: {', '.join(words)}", "dim" if not grid.fresh else "" if grid.right == tried else "bad")]


def _values(row: Row, table: Table, ascii_only: bool) -> list[Span]:
    result = row.result
    if result is None:
        return [(f"{GAP}{fmt.DASH}", "dim")]
    if result.failed:
        return _sentence(result, table, "bad")
    if result.status == "skipped":
        return _sentence(result, table, "dim")
    if result.status in ("ok", "interpreted") and result.ratio is None and result.detail:
        return _without_baseline(row, result, table, ascii_only)
    return [_padded(column, row, result, table, ascii_only) for column in table.columns]


def _padded(column: Column, row: Row, result: CaseResult, table: Table, ascii_only: bool) -> Span:
    text, style = _cell(column, row, result, table)
    return GAP + pad(spell(text, ascii_only), column.width, column.right), style


def _sentence(result: CaseResult, table: Table, style: str) -> list[Span]:
    """The reason, in place of the numbers."""
    word = clip(render.STATUS_WORDS[result.status], table.rest - len(GAP)).ljust(WORD)
    said = GAP + failure_text.brief(result, table.rest - len(GAP + word + GAP))
    return [(GAP + word, style), (clip(said, table.rest - len(GAP + word)), "dim" if style == "dim" else "")]


def _without_baseline(row: Row, result: CaseResult, table: Table, ascii_only: bool) -> list[Span]:
    """The solution's time, and why there is no baseline time."""
    spans: list[Span] = []
    room = table.rest
    for column in table.columns:
        if column.name not in ("models", "dtype", "base", "now"):
            break
        spans.append(_padded(column, row, result, table, ascii_only))
        room -= column.width + len(GAP)
    return [*spans, (clip(GAP + clean(result.detail or ""), room), "warn")]


def _cell(column: Column, row: Row, result: CaseResult, table: Table) -> Span:
    name = column.name
    if name in ("verdict", "ratio", "speedup", "bar"):
        return _judged(column, result, table)
    if name == "roof":
        return render.roof(result, column.title), ""
    if name == "best":
        return _against_best(result, table.has_words)
    if name == "last":
        return _against_last(row, result), "dim"
    if name == "check":
        return _check(result)
    if name == "findings":
        return clean(", ".join(finding.name for finding in result.findings)), "bad" if result.disqualifying else "warn"
    if name in ("dtype", "models"):
        return clean(_about(name, row)), "dim"
    return _number(name, result, table.wall), ""


def _judged(column: Column, result: CaseResult, table: Table) -> Span:
    """A cell in the verdict's style; a wall time has no interval, so no verdict."""
    name, ratio = column.name, result.ratio
    style = {"faster": "faster", "slower": "slower", "unclear": "warn"}.get(ratio.verdict if ratio else "", "")
    if name == "verdict":
        return render.verdict(result), style
    if name == "bar":
        return bar(_speedup(result, table.wall), table.bar_most), style
    if table.wall:
        text = fmt.exact(_speedup(result, wall=True))
        return (text if name == "ratio" else f"{text:>7}"), ""
    if name == "ratio":
        return fmt.exact(result.speedup), style
    return _aligned(ratio, column.width), style


def _speedup(result: CaseResult, wall: bool) -> float | None:
    if not wall:
        return result.speedup
    return result.wall.speedup if result.wall else None


def bar(speedup: float | None, most: float) -> str:
    """From the middle to the right for faster, to the left for slower; a factor of `most` reaches the edge."""
    if not speedup:
        return ""
    halves = round(math.log2(speedup) / math.log2(most) * HALF_BAR * 2)
    whole, half = divmod(min(abs(halves), HALF_BAR * 2), 2)
    if halves < 0:
        return ("▐" * half + "█" * whole).rjust(HALF_BAR) + "│"
    return " " * HALF_BAR + "│" + "█" * whole + "▌" * half


def _about(name: str, row: Row) -> str:
    return ", ".join(row.case.models) if name == "models" else str(row.case.axes.get("dtype", fmt.DASH))


def _number(name: str, result: CaseResult, wall: bool) -> str:
    error = result.error
    times: CaseResult | WallTime | None = result.wall if wall else result
    return {
        "base": lambda: fmt.microseconds(times.baseline_us if times else None),
        "now": lambda: fmt.microseconds(times.solution_us if times else None),
        "error": lambda: fmt.error(error.max if error else None),
        "bound": lambda: fmt.error(error.bound if error else None),
    }[name]()


def _against_last(row: Row, result: CaseResult) -> str:
    """Against the last run; not timed side by side, so without a verdict."""
    before = row.before.speedup if row.before else None
    if before is None or result.speedup is None:
        return fmt.DASH
    return fmt.times(result.speedup / before)


def _aligned(ratio: Ratio | None, width: int) -> str:
    """`1.396x ±0.1%`, with the x of all rows aligned, unless the interval needs that space."""
    speedup = fmt.exact(ratio.speedup if ratio else None)
    spread = fmt.spread(ratio, most=width - len(speedup) - 1) if ratio else ""
    return f"{speedup:>{min(7, width - len(spread) - spread.count('±') - 1)}} {spread}"


def _against_best(result: CaseResult, has_words: bool) -> Span:
    ratio = result.vs_best
    if ratio is None:
        return fmt.DASH, "dim"
    style = {"faster": "faster", "slower": "slower"}.get(ratio.verdict, "")
    word = f" {ratio.verdict}" if has_words else ""
    return f"{fmt.exact(ratio.speedup)} {render.SIGNS[ratio.verdict]}{word}", style


def _check(result: CaseResult) -> Span:
    """`1/2` until the slow checks are done, plus the number of findings."""
    mark = "✓" if result.checked >= 2 else f"{result.checked}/2"
    found = f" !{len(result.findings)}" if result.findings else ""
    return (
        mark + found,
        "bad" if result.disqualifying else "warn" if found else "faster" if result.checked >= 2 else "dim",
    )
