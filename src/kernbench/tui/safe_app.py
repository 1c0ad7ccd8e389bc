"""Common to the workbench and the picker: only text on the screen, ASCII on request, and one sentence after a crash
instead of Textual's page of local variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.app import ReturnType
from textual.binding import Binding
from textual.filter import LineFilter

from kernbench import crash_report
from kernbench.tui import textual_private, theme
from kernbench.tui.widgets.changed_cells import SentCells
from kernbench.tui.widgets.line_filters import AsciiOnly, InOne, TextOnly
from kernbench.tui.widgets.typed_ahead import TypedAhead


class SafeApp(TypedAhead[ReturnType]):
    mistake = ""
    """The crash sentence, printed by the caller once the app has released the terminal."""

    def __init__(self, ascii_only: bool, **given: Any) -> None:
        super().__init__(**given)
        self._last_filters = [TextOnly(), *([AsciiOnly()] if ascii_only else [])]
        self._filters_in_one = InOne([])
        textual_private.on_fatal_error(self, self._take_mistake)
        textual_private.on_paint(self, SentCells().encode)

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = [*super().get_line_filters(), *self._last_filters]
        if filters != self._filters_in_one.filters:  # another theme, or the first paint
            self._filters_in_one = InOne(filters)
        return [self._filters_in_one]

    def get_css_variables(self) -> dict[str, str]:
        return theme.readable(super().get_css_variables(), self.current_theme.dark)

    def get_key_display(self, binding: Binding) -> str:
        """`ctrl+c` as the rest of kernbench spells it, instead of Textual's `^c`."""
        shown = super().get_key_display(binding)
        return f"ctrl+{shown[1:]}" if len(shown) > 1 and shown.startswith("^") else shown

    def _take_mistake(self, problem: BaseException) -> bool:
        """Handle an uncaught exception; false if the user asked for the full traceback."""
        if crash_report.is_asked_for():
            return False
        self.mistake = self.mistake or crash_report.sentence(problem)  # later failures follow from the first
        return True
