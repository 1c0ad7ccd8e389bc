"""The results pane: one row a case, the grid in one line below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from kernbench.tui import columns
from kernbench.tui.board import Board, Change, Row
from kernbench.tui.rows import RowView
from kernbench.tui.spans import Span


class Results(RowView):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "row", key_display="enter", tooltip="everything known of the row")
    ]

    class Selected(Message):
        """The cursor rests on another case."""

        def __init__(self, case_id: str) -> None:
            self.case_id = case_id
            super().__init__()

    def __init__(self, board: Board, ascii_only: bool) -> None:
        super().__init__(id="results", ascii_only=ascii_only)
        self.board = board
        self._chosen: str | None = None
        """Id of the case that the user moved the cursor to."""
        self._table: columns.Table | None = None

    def on_mount(self) -> None:
        self.reshape()

    @property
    def selected(self) -> Row | None:
        """The row under the cursor."""
        cases = self.board.cases
        return self.board.row(cases[self.cursor]) if self.cursor < len(cases) else None

    def count(self) -> int:
        return len(self.board.cases)

    def lines(self) -> int:
        return self.count() + (1 if self.board.grid() else 0)

    def header(self, width: int) -> Sequence[Span]:
        return columns.header(self._columns(width))

    def line(self, index: int, width: int) -> Sequence[Span]:
        if index < self.count():
            return columns.line(self.board.row(self.board.cases[index]), self._columns(width), self.ascii_only)
        grid = self.board.grid()
        return columns.grid_line(grid) if grid else ()

    def apply(self, change: Change) -> None:
        """Paint what a change touched, and no more."""
        before, self._table = self._table, None
        longer = self.virtual_size.height != self.lines() + self.HEADER
        if change.rows or longer or before != self._columns(self.line_width):
            self._follow_selected()
            self.reshape()
            return
        places = {case.id: index for index, case in enumerate(self.board.cases)}
        # A case without a row is counted in the line below the rows.
        for index in {places.get(case_id, self.count()) for case_id in change.cases}:
            self.refresh_row(index)

    def moved(self) -> None:
        row = self.selected
        if row is not None:
            self._chosen = row.case.id
            self.post_message(self.Selected(row.case.id))

    def on_resize(self) -> None:
        self._table = None

    def _follow_selected(self) -> None:
        """The cursor stays on its case, wherever that went."""
        ids = [case.id for case in self.board.cases]
        if self._chosen in ids:
            self.cursor = ids.index(self._chosen)
        elif ids:
            self.post_message(self.Selected(ids[min(self.cursor, len(ids) - 1)]))

    def _columns(self, width: int) -> columns.Table:
        if self._table is None:
            self._table = columns.choose(width, self.board.rows(), self.board.interpreted)
        return self._table
