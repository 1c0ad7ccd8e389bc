"""What the parts of the screen ask of the app and of its main screen: these few things, and not the whole of either."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from kernbench.events import Summary
from kernbench.tui.state.board import Board, Row
from kernbench.tui.state.engine_protocol import Engine

if TYPE_CHECKING:
    from textual.screen import Screen  # state itself runs without Textual

Severity = Literal["information", "warning", "error"]
Answer = TypeVar("Answer")


class MainView(Protocol):
    """The main screen: what is selected on it, and how it shows something new."""

    @property
    def active(self) -> str:
        """Name of the pane that has the keys."""

    @property
    def selected_row(self) -> Row | None: ...

    @property
    def shown_rows(self) -> list[Row]:
        """Those that the filter leaves, in the order of the table."""

    @property
    def selected_entry(self) -> Summary | None: ...

    def reveal(self, name: str) -> None:
        """Show a pane, if it is not in view, without taking the keys to it."""

    def show_iterations(self) -> None:
        """Read the list anew: an entry came or changed."""

    def paint(self) -> None: ...


class Bench(Protocol):
    """The app, as an action or a page sees it."""

    @property
    def engine(self) -> Engine:
        """Of the task in view; another one after a switch."""

    @property
    def board(self) -> Board: ...

    @property
    def main(self) -> MainView: ...

    @property
    def ascii_only(self) -> bool: ...

    def say(self, sentence: str, severity: Severity = "information") -> None:
        """Show a sentence until the next one."""

    def tell(self, sentence: str, severity: Severity = "information") -> None:
        """Say it and keep it in the output pane: a path or a command is wanted when the line has gone."""

    def push_screen(self, screen: Screen[Answer], callback: Callable[[Answer | None], None] | None = None) -> object:
        """Open a page or a dialog; `callback` gets the answer."""

    def close_pages(self) -> None:
        """Go back to the main screen."""

    def run_worker(self, work: Coroutine[Any, Any, object], *, exit_on_error: bool) -> object:
        """Run it beside the event loop's other work."""
