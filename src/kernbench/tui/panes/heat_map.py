"""Cases over iterations, below the results: one line per case, one cell per iteration.

Newer iterations are to the right of older ones, which stay where they are, so that a run sends one column. Signs differ
as well as colors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.results import FAILURES
from harness.shared.task import Case
from kernbench.events import Summary
from kernbench.tui.state.board import Board
from kernbench.tui.state.engine_protocol import Archive
from kernbench.tui.state.row_history import NOT_RUN, Outcome, RowHistory
from kernbench.tui.text.spans import Span, clean, pad, pad_name
from kernbench.tui.widgets.row_view import RowView

LEAST_CASES, LEAST_ENTRIES, LEAST_ROOM = 3, 2, 10
"""Lines, iterations and cells: fewer are not worth the room."""
AROUND = 2
"""Lines besides the cases: the iterations' numbers and the legend."""
LONGEST_LABEL = 18
WIDTHS = (6, 3, 2, 1)
"""Cells of an iteration, the widest that fits: a number, or a sign with or without a gap."""
NUMBER = 6
FASTER = ((1.8, "█"), (1.4, "▓"), (1.15, "▒"), (1.02, "░"))
SLOWER = ((0.8, "▼"), (0.98, "▾"))
EVEN, UNCLEAR, FAILED, PASSED = "·", "?", "x", "o"
ASCII = str.maketrans("█▓▒░▼▾·", "#%*+Vv.")
FASTER_LEGEND, SLOWER_LEGEND = ("░▒▓█", "faster"), ("▾▼", "slower")


def draw(
    history: RowHistory, cases: Sequence[Case], width: int, height: int, ascii_only: bool = False
) -> list[list[Span]]:
    """At most `height` lines; none if there is nothing to compare or no room."""
    shown = cases[: height - AROUND]
    label = min(max((len(case.label) for case in shown), default=0), LONGEST_LABEL)
    room = width - label - 1
    if len(shown) < min(LEAST_CASES, len(cases)) or len(history.entries) < LEAST_ENTRIES or room < LEAST_ROOM:
        return []
    cell = next((cells for cells in WIDTHS if cells * len(history.entries) <= room), 1)
    entries = newest(history.entries, room // cell)
    lines = [[(" " * (label + 1), ""), (_numbers(entries, cell, room), "dim")]]
    known = [history.rows(entry) for entry in entries]
    for case in shown:
        cells = [_cell(rows.get(case.id, NOT_RUN), cell) for rows in known]
        alike = groupby(cells, key=lambda part: part[1])
        merged = [("".join(text for text, _ in group), style) for style, group in alike]
        lines.append([(pad_name(clean(case.label), label) + " ", ""), *merged])
    lines.append(_legend(width, len(cases) - len(shown)))
    return [[(text.translate(ASCII), style) for text, style in line] for line in lines] if ascii_only else lines


def newest(entries: Sequence[Summary], most: int) -> Sequence[Summary]:
    """As many as fit; the oldest leave by the dozen, so that the others move seldom."""
    step = max(most // 4, 1)
    left_out = -(-max(len(entries) - most, 0) // step) * step
    return entries[left_out:]


def _numbers(entries: Sequence[Summary], cell: int, room: int) -> str:
    """The iterations' numbers above their columns: the newest, and as many others as fit."""
    names = [f"#{entry.iteration or 0}" for entry in entries]
    step = -(-(max(map(len, names)) + 1) // cell)
    end = (len(names) - 1) * cell
    moved = max(end + len(names[-1]) - room, 0)  # so that the last one ends where the room does
    text = ""
    for index in range((len(names) - 1) % step, len(names), step):
        text = text.ljust(index * cell - (moved if index * cell == end else 0)) + names[index]
    return text


def _cell(outcome: Outcome, cells: int) -> Span:
    sign, style = sign_of(outcome)
    if cells == NUMBER and outcome.speedup is not None:
        sign = sign + fmt.fixed(outcome.speedup, 2)
    elif cells > 1:
        sign *= max(cells - 1, 1)
    return pad(sign, cells), style


def sign_of(outcome: Outcome) -> Span:
    """The sign of one result and its style."""
    speedup = outcome.speedup
    if speedup is None:
        failed = outcome.status in FAILURES
        return (FAILED, "bad") if failed else (PASSED, "") if outcome.status in ("ok", "interpreted") else (" ", "dim")
    if outcome.verdict == "unclear":
        return UNCLEAR, "warn"
    if outcome.verdict == "same":
        return EVEN, "dim"
    # one that is faster or slower by less than the first step has its sign all the same
    fallback = {"faster": (FASTER[-1][1], "faster"), "slower": (SLOWER[-1][1], "slower")}.get(outcome.verdict or "")
    faster = next(((sign, "faster") for least, sign in FASTER if speedup > least), None)
    slower = next(((sign, "slower") for most, sign in SLOWER if speedup < most), None)
    return faster or slower or fallback or (EVEN, "dim")


def _legend(width: int, left_out: int) -> list[Span]:
    """As much of it as fits."""
    faster = " ".join(fmt.plain(least) for least, _ in reversed(FASTER))
    slower = " ".join(fmt.plain(most) for most, _ in reversed(SLOWER))
    long = [FASTER_LEGEND, (f" faster than {faster}x  ", "dim"), SLOWER_LEGEND, (f" slower than {slower}x", "dim")]
    short = [FASTER_LEGEND, (" faster  ", "dim"), SLOWER_LEGEND, (" slower", "dim")]
    others: list[Span] = [(f"  {EVEN} even  ", "dim"), (UNCLEAR, "warn"), (" unclear  ", "dim"), (FAILED, "bad")]
    others.append((" failed", "dim"))
    more: list[Span] = [(f"  {fmt.plural(left_out, 'case')} not shown", "dim")] if left_out else []
    forms: list[list[Span]] = [[*long, *others, *more], [*short, *others, *more], [*short, *more], short]
    return next((form for form in forms if sum(len(text) for text, _ in form) <= width), [])


class HeatMap(RowView, can_focus=False):
    HEADER = 0
    HAS_CURSOR = False

    def __init__(self, ascii_only: bool) -> None:
        super().__init__(id="heat", ascii_only=ascii_only)
        self._history: RowHistory | None = None
        self._cases: list[Case] = []
        self._all = 0
        """How many cases there are without a filter: what decides the height."""
        self._drawn: list[list[Span]] = []
        self._unknown: list[Summary] = []
        """Iterations whose rows are still to be read."""
        self.is_reading = False

    def on_mount(self) -> None:
        self.border_title = "Cases over iterations"

    def follow(self, board: Board, entries: Sequence[Summary], archive: Archive) -> None:
        """Show these iterations; rows that are not known yet are read first."""
        self._history, self._all = board.history, len(board.task.timed)
        self._unknown = board.history.follow(entries)
        if not self._unknown:
            self._draw()
        elif not self.is_reading:
            self.is_reading = True
            self.run_worker(self._read(board.history, archive), exit_on_error=False)

    def keep_to(self, cases: Sequence[Case]) -> None:
        """Show the timed ones of these, in this order: those that pass the filter."""
        timed = [case for case in cases if case.kind == "case"]
        if timed != self._cases:
            self._cases = timed
            self._draw()

    async def _read(self, history: RowHistory, archive: Archive) -> None:
        """One iteration at a time, so that nothing waits for them; then draw them once."""
        while self._unknown:
            entry = self._unknown.pop(0)
            try:
                rows = await asyncio.to_thread(archive.rows, entry)
            except (UserError, OSError):  # the log's own reader says why
                rows = {}
            history.take(entry, rows.values())
        self.is_reading = False
        self._draw()

    def wanted(self) -> tuple[int, int]:
        """The least and the most lines that are of use, with the title; zero if there is nothing to compare yet."""
        if self._history is None or len(self._history.entries) < LEAST_ENTRIES or not self._all:
            return 0, 0
        return min(LEAST_CASES, self._all) + AROUND + 1, self._all + AROUND + 1

    def on_resize(self) -> None:
        self._draw()

    def count(self) -> int:
        return len(self._drawn)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return self._drawn[index]

    def _draw(self) -> None:
        if self.size.area and self._history is not None:
            drawn = draw(self._history, self._cases, self.line_width, self.size.height, self.ascii_only)
            if drawn != self._drawn:
                self._drawn = drawn
                self.reshape()
