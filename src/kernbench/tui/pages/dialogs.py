"""Small screens over the workbench: a choice, a question, a page to read. Esc closes each, ? lists the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from kernbench.events import CaseLanded
from kernbench.tui.state.board import Board, Row
from kernbench.tui.text import row_detail
from kernbench.tui.text.spans import Span, clean, content
from kernbench.tui.widgets.key_line import KeyLine

HELP = Binding("question_mark", "app.help", "help", key_display="?", tooltip="list all keys", id="help")
TO_SHELL = Binding("ctrl+z", "app.suspend_process", "suspend to the shell (fg returns)", show=False)
"""A screen over the workbench hides the keys below it; these two work on every screen without a text box."""


class AnsweredOnce(Screen[ScreenResultType]):
    """Takes only its first answer: a second enter may have arrived already, and would close the screen below."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


class Choose(ModalScreen[str | None], AnsweredOnce[str | None]):
    """Choose one of a few; the current choice is marked in words."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "close"), HELP, TO_SHELL]

    def __init__(self, title: str, choices: Sequence[str], current: str = "", mark: str = "") -> None:
        super().__init__()
        self._title, self._choices, self._current, self._mark = title, choices, current, mark

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._title, markup=False, classes="dialog-title")
            named = [f"{name} ({self._mark})" if name == self._current else name for name in self._choices]
            yield OptionList(*[Option(Content(name), id=None) for name in named], compact=True)
            yield Static("enter: choose, esc: close", markup=False, classes="dialog-help")

    def on_mount(self) -> None:
        if self._current in self._choices:
            self.query_one(OptionList).highlighted = self._choices.index(self._current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index])


class Confirm(ModalScreen[bool]):
    """A question that only `y` answers with yes: enter and esc both cancel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape,enter,q", "dismiss(False)", "no"),
        HELP,
        TO_SHELL,
    ]

    def __init__(self, question: str, detail: str) -> None:
        super().__init__()
        self._question, self._detail = question, detail

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False, classes="dialog-title")
            yield Static(self._detail, markup=False)
            yield Static("y: yes, n or esc: cancel", markup=False, classes="dialog-help")


class Page(ModalScreen[None]):
    """A scrolling page to read, with its keys at the bottom."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll(1)", "down", show=False),
        Binding("k", "scroll(-1)", "up", show=False),
        Binding("escape,q,enter", "dismiss(None)", "back"),
        HELP,
        TO_SHELL,
    ]
    AUTO_FOCUS = "#page-body"

    def __init__(self, title: str, lines: Sequence[Sequence[Span]]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            yield Static(self._title, markup=False, classes="dialog-title", id="page-title")
            with VerticalScroll(id="page-body"):
                yield Static(_text(self._lines), markup=False, id="page-text")
            yield KeyLine()

    def show(self, lines: Sequence[Sequence[Span]], title: str | None = None) -> None:
        """Replace the page's lines, and its title if given."""
        self.query_one("#page-text", Static).update(_text(lines))
        if title is not None:
            self.query_one("#page-title", Static).update(title)

    def action_scroll(self, step: int) -> None:
        body = self.query_one("#page-body", VerticalScroll)
        body.scroll_relative(y=step, animate=False)


class RowPage(Page):
    """The row page: all details of a row, with keys to open its error and copy it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "app.edit", "edit", tooltip="open its error or the solution in $EDITOR", id="edit"),
        Binding("t", "app.traceback", "traceback", show=False, tooltip="show its traceback", id="traceback"),
        Binding("y", "app.copy_selected", "copy", tooltip="copy the row as Markdown", id="copy"),
    ]

    def __init__(self, row: Row, board: Board, ascii_only: bool) -> None:
        super().__init__(clean(row.case.label), _details(row, board, ascii_only))
        self._case, self._ascii_only = row.case.id, ascii_only

    def follow(self, board: Board, event: CaseLanded) -> None:
        """Update the page when its row finishes again."""
        if event.result.id != self._case:
            return
        for row in board.rows():
            if row.case.id == self._case:
                self.show(_details(row, board, self._ascii_only))


class TracebackPage(Page):
    """A traceback, wrapped so that no line is cut."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "dismiss(None)", "back", show=False, id="traceback"),
        Binding("e", "app.edit", "edit", id="edit"),
    ]


def _details(row: Row, board: Board, ascii_only: bool) -> list[list[Span]]:
    bandwidth = board.environment.bandwidth if board.environment else None
    return row_detail.lines(row, board.task, bandwidth, ascii_only, board.history.of_case(row.case.id))


def _text(lines: Sequence[Sequence[Span]]) -> Content:
    return Content("\n").join(content(line) for line in lines)
