"""The filter's input line: rows update with every letter; enter keeps the filter, esc shows all rows."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


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

    def action_leave(self, kept: bool) -> None:
        self.post_message(self.Left(kept))
