"""The text dialog: several lines, with earlier texts on the up key."""

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

from kernbench.tui.pages.dialogs import AnsweredOnce


class Field(TextArea):
    """Up in the first line goes back through earlier texts, down in the last line forward again."""

    def __init__(self, value: str, placeholder: str, history: Sequence[str]) -> None:
        super().__init__(value, placeholder=placeholder, soft_wrap=True, compact=True, tab_behavior="focus")
        self.cursor_blink = False
        self.highlight_cursor_line = False
        self._versions = [value, *(text for text in history if text != value)]
        self._at = 0

    class Saved(Message):
        """Enter was pressed. A message, because a binding of the screen could overtake the letters typed before."""

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
        """Keeps the current text as one of the versions."""
        to = self._at + step
        if 0 <= to < len(self._versions):
            self._versions[self._at] = self.text
            self._at = to
            self.text = self._versions[to]
            self.move_cursor(self.document.end)


Target = tuple[str, str]
"""The target of the text, and the question to show."""


class Ask(ModalScreen[str | None], AnsweredOnce[str | None]):
    """Enter saves, ctrl+j starts a new line. The first target is offered first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close"),
        Binding("ctrl+t", "switch", "target"),
    ]

    def __init__(
        self,
        targets: Sequence[Target],
        value: str,
        placeholder: str,
        history: Sequence[str] = (),
        only_one: str = "",
    ) -> None:
        """`only_one` explains why there is no other target."""
        super().__init__()
        self._targets = list(targets)
        self._value, self._placeholder, self._history = value, placeholder, history
        self._only_one = only_one
        self.draft = ""
        """The text when the box was closed without saving."""

    @property
    def target(self) -> str:
        """The chosen target."""
        return self._targets[0][0]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._targets[0][1], markup=False, classes="dialog-title", id="question")
            yield Field(self._value, self._placeholder, self._history)
            yield Static(self._choice(), markup=False, id="target")
            earlier = ", up: history" if self._history else ""
            words = f"enter: save, ctrl+j: new line{earlier}, esc: close"
            yield Static(words, markup=False, classes="dialog-help")

    def on_mount(self) -> None:
        field = self.query_one(Field)
        field.move_cursor(field.document.end)
        self.query_one("#target").display = len(self._targets) > 1

    def on_field_saved(self) -> None:
        self.dismiss(self.query_one(Field).text.strip())

    def action_leave(self) -> None:
        self.draft = self.query_one(Field).text.strip()
        self.dismiss(None)

    def action_switch(self) -> None:
        if len(self._targets) == 1:
            if self._only_one:
                self.app.clear_notifications()  # show it once, however often the key is pressed
                self.notify(self._only_one, markup=False)
            return
        self._targets.append(self._targets.pop(0))
        self.query_one("#question", Static).update(self._targets[0][1])
        self.query_one("#target", Static).update(self._choice())

    def _choice(self) -> str:
        others = " or ".join(name for name, _question in self._targets[1:])
        return f"for {self.target}; ctrl+t: for {others} instead"
