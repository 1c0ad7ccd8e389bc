"""A list of one-line rows with a cursor, painted line by line.

Textual's table sends the whole visible table for one changed cell; this sends the row. Subclasses return the number of
rows and the text of each; a header stays on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kernbench.tui.text.spans import ROW_STYLES, Span


class RowView(ScrollView, can_focus=True):
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"row--{name or 'plain'}" for name in ROW_STYLES} | {"row--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "move(-1000000)", "first", show=False),
        Binding("end,G", "move(1000000)", "last", show=False),
    ]
    HEADER: ClassVar[int] = 1
    """Lines on top that do not scroll."""
    HAS_CURSOR: ClassVar[bool] = True
    GUTTER: ClassVar[str] = "  "
    """Precedes every line; the cursor's sign is as wide."""

    class Opened(Message):
        """Enter, or a click on the row under the cursor."""

        def __init__(self, view: RowView) -> None:
            self.view = view
            super().__init__()

        @property
        def control(self) -> RowView:
            return self.view

    def __init__(self, *, id: str, ascii_only: bool = False) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.ascii_only = ascii_only
        self.cursor = 0
        self._styles: dict[str, Style] = {}

    def count(self) -> int:
        """How many rows the cursor can reach."""
        raise NotImplementedError

    def lines(self) -> int:
        """Lines below the header: the rows and any notes after them."""
        return self.count()

    def header(self, width: int) -> Sequence[Span]:
        return ()

    def line(self, index: int, width: int) -> Sequence[Span]:
        raise NotImplementedError

    def moved(self) -> None:
        """Called when the cursor moved to another row."""

    @property
    def line_width(self) -> int:
        """Width without scrollbar and gutter."""
        return max(self.scrollable_content_region.width - len(self.GUTTER), 1)

    def reshape(self) -> None:
        """Repaint everything: the number or order of rows changed."""
        self.cursor = max(min(self.cursor, self.count() - 1), 0)
        before, now = self.virtual_size.height, self.lines() + self.HEADER
        self.virtual_size = Size(1, now)
        # Lines that stay blank below the rows are not sent again.
        self.refresh(Region(0, 0, self.size.width, min(max(before, now), self.size.height)))

    def refresh_row(self, index: int) -> None:
        """Repaint one row, if it is in view."""
        y = index + self.HEADER - self.scroll_offset.y
        if self.HEADER <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def move_to(self, index: int) -> None:
        index = max(min(index, self.count() - 1), 0)
        if index != self.cursor:
            old, self.cursor = self.cursor, index
            self.refresh_row(old)
            self.refresh_row(index)
            self._show_cursor()
            self.moved()

    def action_move(self, step: int) -> None:
        if self.HAS_CURSOR:
            self.move_to(self.cursor + step)
        else:
            self.scroll_to(y=self.scroll_offset.y + step, animate=False, immediate=True, force=True)

    def action_page(self, step: int) -> None:
        self.action_move(step * max(self.size.height - self.HEADER - 1, 1))

    def action_open(self) -> None:
        self.post_message(self.Opened(self))

    def on_resize(self) -> None:
        self._show_cursor()

    def on_click(self, event: events.Click) -> None:
        index = event.y - self.HEADER + self.scroll_offset.y
        if not self.HAS_CURSOR or event.y < self.HEADER or index >= self.count():
            return
        if index == self.cursor:
            self.action_open()
        self.move_to(index)

    def render_line(self, y: int) -> Strip:
        width = self.line_width
        base = self._style("")
        if y < self.HEADER:
            return self._strip(self.GUTTER, self.header(width), base)
        index = y - self.HEADER + self.scroll_offset.y
        if index >= self.lines():
            return Strip.blank(self.size.width, base)
        here = self.HAS_CURSOR and index == self.cursor and index < self.count()
        if here and self.has_focus:
            base += self._component("row--cursor")
        return self._strip("> " if here else self.GUTTER, self.line(index, width), base)

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def _show_cursor(self) -> None:
        """Scroll just enough to bring the cursor into view."""
        if not self.HAS_CURSOR:
            return
        room = max(self.size.height - self.HEADER, 1)
        top = self.scroll_offset.y
        if self.cursor < top:
            top = self.cursor
        elif self.cursor >= top + room:
            top = self.cursor - room + 1
        # Notes after the last row come into view with it.
        if self.cursor == self.count() - 1:
            top = max(self.lines() - room, 0)
        self.scroll_to(y=top, animate=False, immediate=True, force=True)

    def _strip(self, gutter: str, spans: Sequence[Span], base: Style) -> Strip:
        segments = [Segment(gutter, base)]
        segments += [Segment(text, base + self._foreground(name) if name else base) for text, name in spans if text]
        # Fewer segments mean fewer bytes: merge neighbors with the same style.
        return Strip(segments).adjust_cell_length(self.size.width, base).simplify()

    def _style(self, name: str) -> Style:
        return self._component(f"row--{name or 'plain'}")

    def _foreground(self, name: str) -> Style:
        """A style without its background, so that the cursor's shows through."""
        key = f"fore {name}"
        if key not in self._styles:
            style = self._style(name)
            self._styles[key] = Style(color=style.color, bold=style.bold, dim=style.dim)
        return self._styles[key]

    def _component(self, name: str) -> Style:
        if name not in self._styles:
            self._styles[name] = self.get_component_rich_style(name)
        return self._styles[name]
