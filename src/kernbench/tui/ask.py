"""The dialog for words: several lines of text, with what was written before at the up key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea


class Field(TextArea):
    """Up in the first line goes back through what was written before, down in the last one forward again."""

    def __init__(self, value: str, placeholder: str, history: Sequence[str]) -> None:
        super().__init__(value, placeholder=placeholder, soft_wrap=True, compact=True, tab_behavior="focus")
        self.cursor_blink = False
        self.highlight_cursor_line = False
        self._versions = [value, *(text for text in history if text != value)]
        self._at = 0

    class Saved(Message):
        """Enter: comes after every letter typed before it, as a binding of the screen would not."""

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            self.post_message(self.Saved())
        elif event.key in ("ctrl+j", "alt+enter"):
            self.insert("\n")
        else:
            return
        event.stop()
        event.prevent_default()

    def action_cursor_up(self, select: bool = False) -> None:
        if self.cursor_at_first_line:
            self._turn(1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if self.cursor_at_last_line:
            self._turn(-1)
        else:
            super().action_cursor_down(select)

    def _turn(self, step: int) -> None:
        """What is typed now is kept as a version too."""
        to = self._at + step
        if 0 <= to < len(self._versions):
            self._versions[self._at] = self.text
            self._at = to
            self.text = self._versions[to]
            self.move_cursor(self.document.end)


class Ask(ModalScreen[str | None]):
    """Enter saves; ctrl+j begins another line, as enter does in an editor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave"),
    ]

    def __init__(self, title: str, value: str, placeholder: str, history: Sequence[str] = ()) -> None:
        super().__init__()
        self._title, self._value, self._placeholder, self._history = title, value, placeholder, history

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._title, markup=False, classes="dialog-title")
            yield Field(self._value, self._placeholder, self._history)
            earlier = ", up: earlier ones" if self._history else ""
            words = f"enter saves, ctrl+j: another line{earlier}, esc leaves"
            yield Static(words, markup=False, classes="dialog-help")

    def on_mount(self) -> None:
        field = self.query_one(Field)
        field.move_cursor(field.document.end)

    def on_field_saved(self) -> None:
        self.dismiss(self.query_one(Field).text.strip())
