"""The help page and the palette's list, built from the bindings; typing searches the page. From here to the guide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from kernbench.machine import guide_pages, markdown_text
from kernbench.tui.bindings import KEYS
from kernbench.tui.pages.dialogs import TO_SHELL, Choose, Page, RowPage
from kernbench.tui.pages.history import DiffPage, EntryPage
from kernbench.tui.panes.iterations import Iterations
from kernbench.tui.panes.output import Output
from kernbench.tui.panes.results import Results
from kernbench.tui.text.spans import Span, content
from kernbench.tui.widgets.row_view import RowView

KEY_WIDTH, DOES_WIDTH = 13, 46
WIDEST_PAGE = 100
FOOTER = "esc: back, ctrl+g: the guide; names on the right are for config.toml"
STYLES = {"title": "head", "head": "head", "columns": "strong", "code": "dim", "text": ""}
"""Of a guide page's lines."""
Row = tuple[str, str, str]
"""Keys, what they do, the action's name in config.toml."""
BOX_KEYS: list[Row] = [
    ("enter", "save", ""),
    ("ctrl+j", "new line", ""),
    ("ctrl+t", "write to the last entry, if it has no hypothesis", ""),
    ("up", "history", ""),
    ("esc", "close, but keep the text for next time", ""),
]


def main_bindings() -> list[Binding]:
    """The global keys."""
    return _bindings(KEYS)


def named_bindings() -> dict[str, Binding]:
    """Every action that config.toml can bind to another key."""
    everything = [binding for _, bindings in _groups() for binding in bindings]
    return {binding.id: binding for binding in everything if binding.id}


def list_bindings() -> list[Binding]:
    """The keys of a list, which take precedence over the global ones."""
    return [*_bindings(RowView.BINDINGS), *_bindings(Results.BINDINGS), *_bindings(Output.BINDINGS)]


def page_bindings() -> list[tuple[str, Binding]]:
    """The keys of the pages, where the keys of lists and of the screen below do not work."""
    pages: dict[str, type[Page]] = {"an entry": EntryPage, "a diff": DiffPage}
    return [(name, binding) for name, page in pages.items() for binding in _bindings(page.BINDINGS)]


def key_rows(display: Callable[[Binding], str], keys: dict[str, str]) -> list[tuple[str, list[Row]]]:
    """Groups of rows; `keys` are the ones that config.toml changed."""
    everything = [(title, [_row(binding, display, keys) for binding in bindings]) for title, bindings in _groups()]
    everything[0][1].append(("ctrl+p", "find any command by name", ""))
    return [*everything, ("While typing (h, x)", BOX_KEYS)]


def key_lines(groups: Sequence[tuple[str, list[Row]]], wanted: str) -> list[list[Span]]:
    """The lines that match the search."""
    words = wanted.casefold().split()
    found: list[list[Span]] = []
    for title, rows in groups:
        kept = [row for row in rows if all(word in " ".join([title, *row]).casefold() for word in words)]
        if kept:
            found += [[(title, "head")], *[_line(row) for row in kept], []]
    return found[:-1] or [[("no match; ctrl+p finds any command by name", "dim")]]


class Help(ModalScreen[None]):
    """The workbench builds it once: anew, it would take three times as long to open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", priority=True),
        Binding("enter", "dismiss(None)", "back", priority=True, show=False),
        Binding("ctrl+g", "guide", "guide", priority=True, show=False),
        Binding("down", "scroll(1)", "down", show=False, priority=True),
        Binding("up", "scroll(-1)", "up", show=False, priority=True),
        Binding("pagedown", "scroll(10)", "page down", show=False, priority=True),
        Binding("pageup", "scroll(-10)", "page up", show=False, priority=True),
    ]

    def __init__(self, groups: Sequence[tuple[str, list[Row]]]) -> None:
        super().__init__()
        self._groups = groups

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            yield Static("Keys", markup=False, classes="dialog-title")
            field = Input(placeholder="type to search", compact=True)
            field.cursor_blink = False
            yield field
            with VerticalScroll(id="page-body"):
                yield Static(self._text(""), markup=False, id="page-text")
            yield Static(FOOTER, markup=False, classes="dialog-help")

    def on_screen_suspend(self) -> None:
        """Once closed, back to the state in which it opens."""
        if self.is_attached and not self.is_current:
            self.query_one(Input).value = ""
            self.query_one("#page-body").scroll_home(animate=False, immediate=True)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#page-text", Static).update(self._text(event.value))

    def action_scroll(self, step: int) -> None:
        self.query_one("#page-body", VerticalScroll).scroll_relative(y=step, animate=False, immediate=True)

    def action_leave(self) -> None:
        """Esc clears the search first."""
        field = self.query_one(Input)
        if field.value:
            field.value = ""
        else:
            self.dismiss(None)

    def action_guide(self) -> None:
        self.dismiss(None)
        _list_guide(self.app)

    def _text(self, wanted: str) -> Content:
        return Content("\n").join(content(line) for line in key_lines(self._groups, wanted))


class GuidePage(Page):
    """A page of the guide, in the width of the screen."""

    def __init__(self, topic: str, text: str) -> None:
        super().__init__(f"Guide: {topic}", [])
        self._page = text

    def on_resize(self) -> None:
        lines = markdown_text.lines(self._page, min(self.app.size.width - 4, WIDEST_PAGE))
        self.show([[(line.text, STYLES[line.kind])] for line in lines])


def _list_guide(app: App[Any], current: str = "") -> None:
    """Choose a page and read it; from the page, esc leads back to the list."""
    pages = guide_pages.pages()
    width = max(map(len, pages))
    topics = {
        f"{topic:<{width}}  {guide_pages.title(path).rpartition(': ')[2]}": topic for topic, path in pages.items()
    }

    def read(choice: str | None) -> None:
        if choice is not None:
            text = pages[topics[choice]].read_text(encoding="utf-8")
            app.push_screen(GuidePage(topics[choice], text), lambda _: _list_guide(app, choice))

    app.push_screen(Choose("Guide", list(topics), current, "read last"), read)


def _groups() -> list[tuple[str, list[Binding]]]:
    return [
        ("Everywhere", [*main_bindings(), TO_SHELL]),
        ("In a list", _bindings(RowView.BINDINGS)),
        ("Results", _bindings(Results.BINDINGS)),
        ("Iterations", _bindings(Iterations.BINDINGS)),
        ("Output", _bindings(Output.BINDINGS)),
        ("Row page", _bindings(RowPage.BINDINGS)),
        ("In an entry", _bindings(EntryPage.BINDINGS)),
        ("In a diff", _bindings(DiffPage.BINDINGS)),
    ]


def _row(binding: Binding, display: Callable[[Binding], str], keys: dict[str, str]) -> Row:
    changed = keys.get(binding.id or "")
    if binding.key_display and not changed:
        shown = binding.key_display
    else:
        shown = ", ".join(display(Binding(key, binding.action)) for key in (changed or binding.key).split(","))
    return shown, binding.tooltip or binding.description, binding.id or ""


def _line(row: Row) -> list[Span]:
    keys, does, name = row
    return [(f"{keys:<{KEY_WIDTH}}", "strong"), (f"{does:<{DOES_WIDTH}}", ""), (f"  {name}", "dim")]


def _bindings(declared: list[BindingType]) -> list[Binding]:
    return [binding for binding in declared if isinstance(binding, Binding)]
