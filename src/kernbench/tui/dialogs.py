"""Small screens over the workbench: a line to type, a choice, a page to read. Esc leaves each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kernbench.tui.spans import Span, content


class Ask(ModalScreen[str | None]):
    """One line of text; Enter saves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "leave")]

    def __init__(self, title: str, value: str, placeholder: str) -> None:
        super().__init__()
        self._title, self._value, self._placeholder = title, value, placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._title, markup=False, classes="dialog-title")
            field = Input(self._value, placeholder=self._placeholder, select_on_focus=False, compact=True)
            field.cursor_blink = False
            yield field
            yield Static("enter saves, esc leaves", markup=False, classes="dialog-help")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class Choose(ModalScreen[str | None]):
    """One of a few."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "leave")]

    def __init__(self, title: str, choices: Sequence[str], current: str) -> None:
        super().__init__()
        self._title, self._choices, self._current = title, choices, current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._title, markup=False, classes="dialog-title")
            marks = {name: " (now)" if name == self._current else "" for name in self._choices}
            yield OptionList(*[Option(Content(name + marks[name]), id=None) for name in self._choices], compact=True)
            yield Static("enter chooses, esc leaves", markup=False, classes="dialog-help")

    def on_mount(self) -> None:
        if self._current in self._choices:
            self.query_one(OptionList).highlighted = self._choices.index(self._current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index])


class Page(ModalScreen[None]):
    """Something to read; scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "back"),
        Binding("j", "scroll(1)", "down", show=False),
        Binding("k", "scroll(-1)", "up", show=False),
    ]
    AUTO_FOCUS = "#page-body"

    def __init__(self, title: str, lines: Sequence[Sequence[Span]], about: str | None = None) -> None:
        super().__init__()
        self._title, self._lines = title, lines
        self.about = about
        """Id of the case that the page shows, where it shows one."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            yield Static(self._title, markup=False, classes="dialog-title")
            with VerticalScroll(id="page-body"):
                yield Static(_text(self._lines), markup=False, id="page-text")
            yield Static("esc goes back", markup=False, classes="dialog-help")

    def show(self, lines: Sequence[Sequence[Span]]) -> None:
        """The same page, after something landed."""
        self.query_one("#page-text", Static).update(_text(lines))

    def action_scroll(self, step: int) -> None:
        body = self.query_one("#page-body", VerticalScroll)
        body.scroll_relative(y=step, animate=False)


def _text(lines: Sequence[Sequence[Span]]) -> Content:
    return Content("\n").join(content(line) for line in lines)
