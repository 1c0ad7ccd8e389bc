"""What the workbench and the picker have in common as apps: no sign beyond ASCII where that is asked for, and one
sentence when they failed instead of Textual's page of local variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.app import App, ReturnType
from textual.binding import Binding
from textual.filter import LineFilter

from kernbench import crash_report
from kernbench.tui import textual_private
from kernbench.tui.widgets.ascii_filter import AsciiOnly


class SafeApp(App[ReturnType]):
    mistake = ""
    """For whoever started the app to say, when the terminal is its own again."""

    def __init__(self, ascii_only: bool, **given: Any) -> None:
        super().__init__(**given)
        self._ascii_filters = [AsciiOnly()] if ascii_only else []
        textual_private.on_fatal_error(self, self._take_mistake)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._ascii_filters]

    def get_key_display(self, binding: Binding) -> str:
        """`ctrl+c` as it is said everywhere, where Textual has `^c`."""
        shown = super().get_key_display(binding)
        return f"ctrl+{shown[1:]}" if len(shown) > 1 and shown.startswith("^") else shown

    def _take_mistake(self, problem: BaseException) -> bool:
        """At an exception that nobody caught; false where the user asked for the whole traceback."""
        if crash_report.is_asked_for():
            return False
        self.mistake = self.mistake or crash_report.sentence(problem)  # what fails next is its consequence
        return True
