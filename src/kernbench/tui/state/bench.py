"""The few things that the parts of the screen need from the app and its main screen."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from kernbench.events import Summary
from kernbench.tui.state.board import Board, Row
from kernbench.tui.state.engine_protocol import Engine

if TYPE_CHECKING:
    from textual.screen import Screen  # state runs without Textual

Severity = Literal["information", "warning", "error"]
Answer = TypeVar("Answer")


class MainView(Protocol):
    """The main screen: its selection, and how to update it."""

    @property
    def active(self) -> str:
        """Name of the focused pane."""

    @property
    def selected_row(self) -> Row | None: ...

    @property
    def shown_rows(self) -> list[Row]:
        """Rows that pass the filter, in table order."""

    @property
    def selected_entry(self) -> Summary | None: ...

    @property
    def marked_entries(self) -> Sequence[Summary]:
        """At most two, to be compared."""

    def mark_entry(self) -> None:
        """Mark the selected entry, or unmark it."""

    def reveal(self, name: str) -> None:
        """Bring a pane into view, without focusing it if possible."""

    def show_iterations(self) -> None:
        """Reload the list after an entry was added or changed."""

    @property
    def is_current(self) -> bool:
        """Whether no page or dialog is over it."""

    @property
    def ready(self) -> bool:
        """Whether the panes exist: not on exit or while switching tasks."""

    def paint(self) -> None: ...

    def paint_soon(self) -> None: ...


class Bench(Protocol):
    """The app as actions and pages see it."""

    @property
    def engine(self) -> Engine:
        """The engine of the current task; it changes with the task."""

    @property
    def board(self) -> Board: ...

    @property
    def main(self) -> MainView: ...

    @property
    def ascii_only(self) -> bool: ...

    def say(self, sentence: str, severity: Severity = "information") -> None:
        """Show a sentence until the next one replaces it."""

    def tell(self, sentence: str, severity: Severity = "information") -> None:
        """Show a sentence and keep it in the output pane: the user may need its path or command later."""

    def push_screen(self, screen: Screen[Answer], callback: Callable[[Answer | None], None] | None = None) -> object:
        """Open a page or dialog; `callback` gets the answer."""

    def close_pages(self) -> None:
        """Go back to the main screen."""

    def run_worker(self, work: Coroutine[Any, Any, object], *, exit_on_error: bool) -> object:
        """Run it alongside the event loop's other work."""
