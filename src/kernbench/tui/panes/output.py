"""The output pane: the first error stays on top, the newest output scrolls below it.

A click on file:line opens it. Lines are painted at most four times per second; beyond the limit the oldest are dropped,
and the pane shows how many.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.scrollbar import ScrollTo

from harness.shared import format as fmt
from harness.shared.errors import Where
from kernbench import render
from kernbench.events import RunStarted
from kernbench.tui.state.board import Board
from kernbench.tui.text import failure_text
from kernbench.tui.text.spans import Span, clean, clip
from kernbench.tui.widgets.delays import call_after
from kernbench.tui.widgets.row_view import RowView

MOST_LINES = 2000
LONGEST = 2000
FLUSH_SECONDS = 0.25
ERROR_SHARE = 3 / 5
"""Share of the pane that the error may keep while lines scroll below it."""
REASONS = {"open": "opened", "save": "save", "key": "re-run", "command": "command"}
"""Why a run started, in the line above its output."""

_PLACE = re.compile(r'File "([^"]+)", line (\d+)|([\w./+-]+\.(?:py|cu|cuh|cpp|cc|h|hpp))[:(](\d+)')


def place_in(text: str) -> Where | None:
    """The first file and line number in a line of text."""
    found = _PLACE.search(text)
    return Where(found[1] or found[3], int(found[2] or found[4])) if found else None


class Output(RowView):
    HEADER = 0
    HAS_CURSOR = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "shift(-20)", "left", show=False),
        Binding("right", "shift(20)", "right", show=False),
    ]

    class Clicked(Message):
        """The user clicked a line that names a file and line number."""

        def __init__(self, where: Where) -> None:
            self.where = where
            super().__init__()

    def __init__(self, board: Board, ascii_only: bool) -> None:
        super().__init__(id="output", ascii_only=ascii_only)
        self.board = board
        self.clipped = 0
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._shift = 0
        self._top: list[Span] = []
        self.flush_due = False
        self._follow = True
        """New lines scroll into view, until the user scrolls up, and again from the next run on."""

    def on_mount(self) -> None:
        self.show()

    def add(self, text: str) -> None:
        """Add a line; the next flush paints it."""
        if len(self._lines) == MOST_LINES:
            self.clipped += 1
        self._lines.append(clean(text[:LONGEST]))
        if not self.flush_due and self.is_attached:
            self.flush_due = True
            call_after(FLUSH_SECONDS, self, self._flush)

    def begin_run(self, run: RunStarted) -> None:
        """Mark where a run begins."""
        self._follow = True
        self.add(f"-- {run.at[11:19]} {REASONS[run.reason]}, source {run.source[:8]}")

    def show(self) -> None:
        """Repaint everything: the error on top changed."""
        self._top = self._error()
        self.reshape()
        if self._follow:
            self._go_to_end()

    def count(self) -> int:
        return len(self._above()) + len(self._lines)

    def line(self, index: int, width: int) -> Sequence[Span]:
        text, style = self._at(index)
        return [(clip(text[self._shift :], width), style)]

    def _at(self, index: int) -> Span:
        """The line `index` lines below the first, which may be scrolled out of view."""
        above = self._above()
        y = index - self.scroll_offset.y
        if y < self._pinned():
            return above[y]
        if index < len(above):
            return above[index]
        text = self._lines[index - len(above)]
        return text, "dim" if text.startswith("-- ") else ""

    def _pinned(self) -> int:
        """Lines of the error that stay in place; the rest of a long one scrolls."""
        return min(len(self._top), max(int(self.size.height * ERROR_SHARE), 1))

    def on_click(self, event: events.Click) -> None:
        index = event.y + self.scroll_offset.y
        if index < self.count():
            where = place_in(self._at(index)[0])
            if where is not None:
                self.post_message(self.Clicked(where))

    def action_shift(self, step: int) -> None:
        self._shift = max(self._shift + step, 0)
        self.refresh()

    def _flush(self) -> None:
        self.flush_due = False
        self.reshape()
        if self._follow:
            self._go_to_end()

    def on_resize(self) -> None:
        if self._follow:
            self._go_to_end()

    def action_move(self, step: int) -> None:
        super().action_move(step)
        self._note_position()

    @on(events.MouseScrollUp)
    @on(events.MouseScrollDown)
    @on(ScrollTo)
    def scrolled(self) -> None:
        self.call_after_refresh(self._note_position)

    def _note_position(self) -> None:
        """Stop following when the user scrolls up, resume at the end."""
        self._follow = self.scroll_offset.y >= self._end()

    def _end(self) -> int:
        return max(self.lines() - self.size.height, 0)

    def _go_to_end(self) -> None:
        if self.size.height:
            self.scroll_to(y=self._end(), animate=False, immediate=True, force=True)

    def _above(self) -> list[Span]:
        above = list(self._top)
        if self.clipped:
            above.append((f"-- {fmt.plural(self.clipped, 'earlier line')} clipped", "dim"))
        if not above and not self._lines:
            above.append(("nothing printed yet", "dim"))
        return above

    def _error(self) -> list[Span]:
        if self.board.failure is not None:
            return self._build_error()
        failed = self.board.failed_rows()
        if not failed or failed[0].result is None:
            return []
        result = failed[0].result
        lines: list[Span] = [(f"{clean(failed[0].case.label)}: {render.STATUS_WORDS[result.status]}", "bad")]
        lines.append((clean(render.place(result.where, failure_text.sentence(result))), ""))
        if result.where and result.where.text:
            lines.append((f"  {result.where.line or ''} | {clean(result.where.text)}", "strong"))
        if result.traceback:
            lines.append(("t: show the traceback", "dim"))
        return [*lines, ("", "")]

    def _build_error(self) -> list[Span]:
        event = self.board.failure
        assert event is not None
        place = f"{event.where}" if event.where else render.STATUS_WORDS.get(event.status, "bad task")
        lines: list[Span] = [(clean(place), "bad")]
        if event.where and event.where.text:
            lines.append((f"  {event.where.line or ''} | {clean(event.where.text)}", "strong"))
        lines += [(clean(part), "") for part in event.message.splitlines()]
        if event.traceback:
            lines.append(("t: show the traceback", "dim"))
        return [*lines, ("", "")]
