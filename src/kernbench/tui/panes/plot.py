"""A plot: the trajectory over the iterations, or all rows by size.

One is below the results where there is room, the other below the iterations. The key `p` exchanges them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernbench.events import Summary
from kernbench.tui.panes import roofline, trajectory
from kernbench.tui.state.board import Row
from kernbench.tui.text.spans import Span
from kernbench.tui.widgets.row_view import RowView

TITLES = {"trajectory": "Trajectory", "roofline": "Rows by size"}
FIRST = "trajectory"


def other(view: str) -> str:
    return next(name for name in TITLES if name != view)


class Plot(RowView, can_focus=False):
    HEADER = 0
    HAS_CURSOR = False

    def __init__(self, name: str, ascii_only: bool) -> None:
        super().__init__(id=name, ascii_only=ascii_only)
        self.view = FIRST
        self._iterations: Sequence[Summary] = ()
        self._rows: Sequence[Row] = ()
        self._drawn: list[list[Span]] = []
        self.views: set[str] = set()
        """Those that have something to show."""

    def show(self, iterations: Sequence[Summary], rows: Sequence[Row]) -> None:
        self._iterations, self._rows = iterations, rows
        known = {"trajectory": trajectory.is_plotted(iterations), "roofline": bool(roofline.points_of(rows)[0])}
        self.views = {name for name, found in known.items() if found}
        self._draw()

    def on_mount(self) -> None:
        self.border_title = TITLES[self.view]

    def turn_to(self, view: str) -> None:
        if view != self.view:  # the same title again would paint the plot again
            self.view = view
            self.border_title = TITLES[view]
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def count(self) -> int:
        return len(self._drawn)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return self._drawn[index]

    def _draw(self) -> None:
        if not self.size.area:
            return
        room = self.line_width, self.size.height, self.ascii_only
        if self.view == "trajectory":
            self._drawn = trajectory.draw(self._iterations, *room)
        else:
            self._drawn = roofline.draw(self._rows, *room)
        self.reshape()
