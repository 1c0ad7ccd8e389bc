"""The results pane: one row per case, filtered and sorted; notes on the grid, filter and sort order below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from harness.shared.task import Case
from kernbench.tui.panes import model_rows
from kernbench.tui.state.board import Board, Change, Row
from kernbench.tui.text import result_columns, sort_filter
from kernbench.tui.text.spans import Span, clean, clip
from kernbench.tui.widgets.row_view import RowView


class Results(RowView):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "row", key_display="enter", tooltip="row details", id="open"),
    ]

    class Selected(Message):
        """The cursor moved to another case."""

        def __init__(self, case_id: str) -> None:
            self.case_id = case_id
            super().__init__()

    def __init__(self, board: Board, ascii_only: bool) -> None:
        super().__init__(id="results", ascii_only=ascii_only)
        self.board = board
        self.sort = sort_filter.SORTS[0]
        self.filter_text = ""
        self.wall = False
        self.cases: list[Case] = list(board.cases)
        """Cases that have a row, in table order."""
        self._chosen: str | None = None
        """Id of the case that the user moved to or opened."""
        self._pointed: str | None = None
        """Id of the case that the hint named last."""
        self._table: result_columns.Table | None = None
        self._table_width = 0
        """The width that `_table` fits: a scrollbar changes the width without an event."""

    def on_mount(self) -> None:
        self.reshape()

    @property
    def selected(self) -> Row | None:
        """The row under the cursor."""
        return self.board.row(self.cases[self.cursor]) if self.cursor < len(self.cases) else None

    def count(self) -> int:
        return len(self.cases)

    def lines(self) -> int:
        return self.count() + len(self._notes()) + model_rows.count(self.board.models)

    def header(self, width: int) -> Sequence[Span]:
        return result_columns.header(self._columns(width))

    def line(self, index: int, width: int) -> Sequence[Span]:
        if index < self.count():
            return result_columns.line(self.board.row(self.cases[index]), self._columns(width), self.ascii_only)
        notes = self._notes()
        if index < self.count() + len(notes):
            return [(clip(text, width), style) for text, style in notes[index - self.count()]]
        below = model_rows.lines(self.board.models, self.board.source, width, self.ascii_only)
        return below[index - self.count() - len(notes)]

    def apply(self, change: Change) -> None:
        """Repaint only what changed."""
        before, self._table = self._table, None
        moved = self._arrange()
        longer = self.virtual_size.height != self.lines() + self.HEADER
        if change.rows or moved or longer or before != self._columns(self.line_width):
            self._follow_selected()
            self.reshape()
            return
        places = {case.id: index for index, case in enumerate(self.cases)}
        grid = {case.id for case in self.board.task.cases if case.kind == "check"}
        for case_id in change.cases:
            if case_id in places:
                self.refresh_row(places[case_id])
            elif case_id in grid:  # counted in the note below the rows
                self.refresh_row(self.count())

    def show_only(self, text: str) -> None:
        """Filter by words; empty text shows all rows."""
        if text != self.filter_text:
            self.filter_text = text
            self.apply(Change(rows=True))

    def toggle_wall(self) -> None:
        results = [row.result for row in self.board.rows() if row.result is not None]
        if not any(result.wall for result in results):
            timed = any(result.clock == "wall" for result in results)
            self.notify("these are already wall times" if timed else "no wall time was measured", markup=False)
            return
        self.wall = not self.wall
        self.apply(Change(rows=True))

    def next_sort(self) -> None:
        orders = [*sort_filter.sorts(self.board.rows()), sort_filter.SORTS[0]]
        self.sort = orders[orders.index(self.sort) + 1] if self.sort in orders else orders[0]
        self.cases = []
        self.apply(Change(rows=True))

    def action_open(self) -> None:
        row = self.selected
        self._chosen = row.case.id if row else self._chosen
        super().action_open()

    def moved(self) -> None:
        row = self.selected
        if row is not None:
            self._chosen = row.case.id
            self.post_message(self.Selected(row.case.id))

    def point_to(self, case_id: str | None) -> None:
        """Put the cursor on the row that the hint names, or back on the first one, unless the user has chosen one."""
        ids = [case.id for case in self.cases]
        if self._chosen is None and (case_id in ids or self._pointed is not None):
            self.move_to(ids.index(case_id) if case_id in ids else 0)
            self._chosen, self._pointed = None, case_id

    def on_resize(self) -> None:
        self._table = None
        super().on_resize()

    def _arrange(self) -> bool:
        """Update the rows; true if they changed. During a run they keep their places."""
        cases = [row.case for row in sort_filter.arrange(self.board.rows(), self.sort, self.filter_text)]
        if self.board.run is not None and {case.id for case in cases} == {case.id for case in self.cases}:
            by_id = {case.id: case for case in cases}
            cases = [by_id[case.id] for case in self.cases]
        moved = cases != self.cases
        self.cases = cases
        return moved

    def _notes(self) -> list[list[Span]]:
        notes: list[list[Span]] = []
        grid = self.board.grid()
        if grid:
            notes.append(result_columns.grid_line(grid))
        if self.filter_text:
            shown = f"{len(self.cases)} of {len(self.board.cases)} rows match"
            notes.append([(f"{shown} {clean(self.filter_text)!r}; esc: show all", "accent")])
        if self.sort != sort_filter.SORTS[0]:
            notes.append([(f"{sort_filter.SORT_WORDS[self.sort]}; s: change the order", "dim")])
        if self.wall:
            notes.append([("wall time of one call and its sync; m: device time", "dim")])
        return notes

    def _follow_selected(self) -> None:
        """Keep the cursor on its case when rows move."""
        ids = [case.id for case in self.cases]
        kept = self._chosen or self._pointed
        if kept in ids:
            self.cursor = ids.index(kept)
        elif ids:
            self.cursor = min(self.cursor, len(ids) - 1)
        if ids:
            self.post_message(self.Selected(ids[self.cursor]))

    def _columns(self, width: int) -> result_columns.Table:
        if self._table is None or self._table_width != width:
            rows = [self.board.row(case) for case in self.cases]
            roof = self.board.task.device == "cuda"
            self._table = result_columns.choose(width, rows, self.board.interpreted, self.wall, roof)
            self._table_width = width
        return self._table
