"""The filter's input line: rows update with every letter; enter keeps the filter, esc shows all rows.

Keys that arrive together with the one that ends the input are not meant for it: they go back to the app.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

ENDS = ("escape", "enter", "down")


class FilterLine(Input):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave(False)", "all rows"),
        Binding("enter,down", "leave(True)", "keep", key_display="enter"),
    ]

    class Left(Message):
        def __init__(self, kept: bool) -> None:
            self.kept = kept
            super().__init__()

    def __init__(self, words: str) -> None:
        super().__init__(id="filter", compact=True, placeholder=words, select_on_focus=False)
        self.cursor_blink = False
        self.display = False
        self._is_left = False

    def on_focus(self) -> None:
        self._is_left = False

    async def _on_key(self, event: events.Key) -> None:
        if self._is_left:
            event.stop()
            event.prevent_default()
            self.app.post_message(events.Key(event.key, event.character))
            return
        self._is_left = event.key in ENDS
        await super()._on_key(event)

    def action_leave(self, kept: bool) -> None:
        self.post_message(self.Left(kept))
