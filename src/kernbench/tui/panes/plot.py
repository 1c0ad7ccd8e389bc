"""The plot below the iterations."""

from __future__ import annotations

from collections.abc import Sequence

from kernbench.events import Summary
from kernbench.tui.panes import trajectory
from kernbench.tui.text.spans import Span
from kernbench.tui.widgets.row_view import RowView


class Plot(RowView, can_focus=False):
    HEADER = 0
    HAS_CURSOR = False

    def __init__(self, ascii_only: bool) -> None:
        super().__init__(id="plot", ascii_only=ascii_only)
        self._iterations: Sequence[Summary] = ()
        self._drawn: list[list[Span]] = []

    def show(self, iterations: Sequence[Summary]) -> None:
        self._iterations = iterations
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def count(self) -> int:
        return len(self._drawn)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return self._drawn[index]

    def _draw(self) -> None:
        if self.size.area:
            self._drawn = trajectory.draw(self._iterations, self.line_width, self.size.height, self.ascii_only)
            self.reshape()
