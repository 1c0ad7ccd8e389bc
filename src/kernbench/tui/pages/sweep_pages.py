"""The sweep's dialog, which asks for values of constants, and its table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from harness.shared.errors import UserError
from kernbench.tui.pages.dialogs import AnsweredOnce, Page
from kernbench.tui.text.spans import clean

MOST_SHOWN = 10
"""Constants in the dialog."""


class AskValues(ModalScreen[str | None], AnsweredOnce[str | None]):
    """Lists the constants, and takes values for some of them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "close")]

    def __init__(self, look: Callable[[], Mapping[str, tuple[str, str]]], value: str) -> None:
        """`look` finds the value and the place of each constant; in a thread, for that may take a second."""
        super().__init__()
        self._look, self._value = look, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Which values should be tried?", markup=False, classes="dialog-title")
            yield Static("looking for constants ...", markup=False, id="constants")
            yield Input(self._value, placeholder="TILE=1024,...", compact=True)
            yield Static("enter: start the sweep, esc: close", markup=False, classes="dialog-help")

    async def _fill(self) -> None:
        try:
            known = await asyncio.to_thread(self._look)
        except (UserError, OSError) as problem:
            self.query_one("#constants", Static).update(clean(str(problem)))
            return
        self.query_one("#constants", Static).update("\n".join(_lines(known)))
        for name, (value, _place) in list(known.items())[:1]:
            self.query_one(Input).placeholder = f"{name}={value},..."

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self.run_worker(self._fill())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())


def _lines(known: Mapping[str, tuple[str, str]]) -> Sequence[str]:
    if not known:
        return ["no constant of the solution is set to a number at one place"]
    wide = max(map(len, known))
    shown = [f"{name:<{wide}} = {clean(value)}  {clean(place)}" for name, (value, place) in known.items()]
    more = len(shown) - MOST_SHOWN
    return [*shown[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]


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
