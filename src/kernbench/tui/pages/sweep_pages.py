"""The sweep's dialog, which asks for values of constants, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from kernbench.tui.pages.dialogs import Page
from kernbench.tui.text.spans import clean

MOST_SHOWN = 10
"""Constants in the dialog."""


class AskValues(ModalScreen[str | None]):
    """Lists the constants, and takes values for some of them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "close")]

    def __init__(self, known: Mapping[str, tuple[str, str]], value: str) -> None:
        """`known` has the value and the place of each constant."""
        super().__init__()
        self._known, self._value = known, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Which values should be tried?", markup=False, classes="dialog-title")
            yield Static("\n".join(self._lines()), markup=False, id="constants")
            first = next(iter(self._known.items()), ("TILE", ("1024", "")))
            yield Input(self._value, placeholder=f"{first[0]}={first[1][0]},...", compact=True)
            yield Static("enter: start the sweep, esc: close", markup=False, classes="dialog-help")

    def _lines(self) -> Sequence[str]:
        if not self._known:
            return ["no constant of the solution is set to a number at one place"]
        wide = max(map(len, self._known))
        shown = [f"{name:<{wide}} = {clean(value)}  {clean(place)}" for name, (value, place) in self._known.items()]
        more = len(shown) - MOST_SHOWN
        return [*shown[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())


class SweepPage(Page):
    """The table of a sweep. Answers through `is_wanted` whether the winner should be written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "write", "write the winner", tooltip="write the winner to the solution", id="write_winner"),
    ]

    def __init__(self, lines: Sequence[str], may_write: bool) -> None:
        super().__init__("Sweep", [[(clean(line), "")] for line in lines])
        self._may_write, self.is_wanted = may_write, False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._may_write if action == "write" else True

    def action_write(self) -> None:
        self.is_wanted = True
        self.dismiss(None)
