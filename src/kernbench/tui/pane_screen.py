"""A screen of panes: which ones show, which one has the focus, and the tabs that name them (see layout.py).

A pane is a widget with the pane's name as its id; the subclass fills it.
"""

from __future__ import annotations

from collections.abc import Mapping

from textual import events, on
from textual.geometry import Size
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

from kernbench.tui import layout
from kernbench.tui.layout import PANES, SIDE, STACKED, WIDE
from kernbench.tui.panes.heat_map import HeatMap
from kernbench.tui.panes.plot import FIRST, Plot, other
from kernbench.tui.panes.profile import ProfilePane
from kernbench.tui.widgets.row_view import RowView
from kernbench.tui.widgets.tab_line import TabLine

AROUND = ("line-one", "line-two", "tabs", "hint", "filter")
"""The one-line widgets around the panes; the key line is always there too."""
LEAST = 3
"""Lines of a pane that shows nothing yet."""


class PaneScreen(Screen[None], inherit_bindings=False):
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """As in Textual, where another focus repaints the whole screen: the panes repaint what shows it."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (STACKED, "-stacked")]

    def __init__(self) -> None:
        super().__init__()
        self.reset_panes()

    def reset_panes(self) -> None:
        """Back to the state in which the screen opens."""
        self.active = "results"
        """Name of the focused pane."""
        self._side = "iterations"
        """Name of the pane next to the results, if one fits."""
        self.single_pane = False
        self._view = FIRST
        """What the larger plot shows."""
        self._heights: dict[str, int] = {}
        self.is_failed = False
        """Something is wrong with the last save: the output gets more room."""

    def paint(self) -> None:
        """Show what changed after another pane came into view."""
        raise NotImplementedError

    @property
    def is_wide(self) -> bool:
        return self.size.width >= WIDE

    def arrange_panes(self, size: Size | None = None) -> None:
        """Show the panes that fit; `size` is given while the screen does not know its size yet."""
        size = size or self.size
        if self.active != "results":
            self._side = self.active
        filtering = bool(self.query_one("#filter").display)
        found = layout.choose(size.width, size.height, self.single_pane, self.active, self._side, filtering)
        self.set_class(found.one, "-one")
        self.set_class(found.stacked, "-stack")
        self.set_class(filtering, "-filtering")
        for name, shown in found.display.items():
            self.query_one(f"#{name}").display = shown
        self.paint()
        # The layout comes next: a widget that is painted or asked for its place before it would never be painted.
        self.refresh(repaint=False, layout=True)
        self.call_after_refresh(self.share_height)  # what wraps depends on the widths

    def share_height(self) -> None:
        """Panes of one column get the lines that their content needs.

        Called when a pane has more or fewer lines for good: moving the cursor must not move the panes.
        """
        shown = {name: pane for name, _ in SIDE if (pane := self.query_one(f"#{name}", RowView)).display}
        if not shown:  # the panes of another task are being made
            return
        room = self._body_height() - bool(self.query_one("#side-tabs").display)
        wanted = {name: max(pane.lines() + pane.HEADER, LEAST) for name, pane in shown.items()}
        is_stacked = self.has_class("-stack")
        has_plot = self.size.height >= layout.PLOT_LINES and (is_stacked or "output" not in shown)
        is_only_plot = not self.query_one("#wide-plot").display
        heights = layout.share(room, wanted, is_stacked, self.is_failed, has_plot, is_only_plot)
        self._set_heights(heights)
        self.query_one("#plot").display = heights["plot"] > 0

    def share_main_column(self) -> None:
        """The results get the lines that they need, the heat map and a plot the others."""
        results, heat = self.query_one("#results", RowView), self.query_one("#heat", HeatMap)
        has_plot = bool(self.query_one("#wide-plot", Plot).views)
        wanted = results.lines() + results.HEADER
        heights = layout.share_main(self._body_height(), wanted, *heat.wanted(), has_plot)
        self._set_heights(heights)
        for name in ("heat", "wide-plot"):
            self.query_one(f"#{name}").display = heights[name] > 0
        self._show_views()

    def _body_height(self) -> int:
        around = [self.query_one(f"#{name}") for name in AROUND]
        return self.size.height - sum(bool(widget.display) for widget in around) - 1

    def _set_heights(self, heights: Mapping[str, int]) -> None:
        for name, height in heights.items():
            if self._heights.get(name) != height:
                self._heights[name] = height
                self.query_one(f"#{name}").styles.height = height

    def set_single_pane(self, single: bool) -> None:
        """Give one pane the whole screen, or show all panes again."""
        self.single_pane = single
        self.arrange_panes()

    def reveal(self, name: str) -> None:
        """Bring a pane into view, without focusing it if possible."""
        pane = self.query_one(f"#{name}")
        if not pane.display and self.is_wide and not self.single_pane:
            self._side = name
            self.arrange_panes()
        elif not pane.display or not pane.parent or not self.query_one("#side").display:
            self.action_pane(name)

    def turn_plots(self) -> None:
        """Exchange the plots, or bring one into view if none is."""
        if any(plot.display and plot.size.area for plot in self.query(Plot)):
            self._view = other(self._view)
            self._show_views()
        else:
            self.reveal("iterations")

    def _show_views(self) -> None:
        """The larger plot has the first view; alone, the other has it too."""
        wide, narrow = self.query_one("#wide-plot", Plot), self.query_one("#plot", Plot)
        view = self._view if self._view in wide.views else other(self._view)
        wide.turn_to(view)
        narrow.turn_to(other(view) if wide.display else self._view)

    def action_pane(self, name: str) -> None:
        self.active = name
        self.arrange_panes()
        # At once, so that the next key goes to the new pane.
        self.set_focus(self.query_one(f"#{name}"), scroll_visible=False)

    def action_step_pane(self, step: int) -> None:
        names = [name for name, _ in PANES]
        self.action_pane(names[(names.index(self.active) + step) % len(names)])

    def action_redraw(self) -> None:
        """Send everything: another program may have written on the terminal."""
        self.refresh()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if event.widget.id in dict(PANES) and event.widget.id != self.active:
            self.active = event.widget.id
            self.arrange_panes()

    @on(ProfilePane.Rewrapped)
    def share_again(self) -> None:
        self.share_height()

    @on(TabLine.Picked)
    def pick_tab(self, event: TabLine.Picked) -> None:
        self.action_pane(event.pane)

    def show_titles(self) -> None:
        """Titles on the borders, which are visible when the panes are stacked."""
        for name, title in SIDE:
            self.query_one(f"#{name}").border_title = title

    def show_tabs(self, warns: Mapping[str, bool]) -> None:
        """A pane that warns has a `!` after its title."""
        panes = [(name, f"{title} !" if warns.get(name) else title) for name, title in PANES]
        self.query_one("#tabs", TabLine).show(panes, self.active)
        self.query_one("#side-tabs", TabLine).show(panes[1:], self._side)
