"""The line of tabs: `[Results]  Iterations  Output`.

On a narrow screen the gaps go first, then long titles are shortened: a `!` after the last one must stay visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message
from textual.widgets import Static

from kernbench.tui.text.spans import Span, content

SHORT_TITLES = {"Iterations": "Iters"}
GAP = " "


class TabLine(Static):
    class Picked(Message):
        def __init__(self, pane: str) -> None:
            self.pane = pane
            super().__init__()

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, markup=False)
        self._panes: Sequence[tuple[str, str]] = ()
        self._active = ""
        self._shown: list[tuple[str, str]] = []

    def show(self, panes: Sequence[tuple[str, str]], active: str) -> None:
        """Panes as (name, title)."""
        self._panes, self._active = panes, active
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        texts = fitting(self._panes, self._active, self.content_size.width)
        if texts != self._shown:
            self._shown = texts
            spans: list[Span] = []
            for name, text in texts:
                title = text.rstrip() if name == self._active else text
                spans += [(title, "tab" if name == self._active else "dim"), (text[len(title) :], "")]
            self.update(content(spans), layout=False)

    def on_click(self, event: events.Click) -> None:
        left = 0
        for name, text in self._shown:
            if left <= event.x < left + len(text):
                self.post_message(self.Picked(name))
            left += len(text)


def fitting(panes: Sequence[tuple[str, str]], active: str, width: int) -> list[tuple[str, str]]:
    """Panes as (name, text), with texts as long as the width allows; a width of 0 means unknown."""
    short = [(name, SHORT_TITLES.get(title, title)) for name, title in panes]
    forms = [_texts(panes, active, GAP), _texts(panes, active, ""), _texts(short, active, "")]
    lengths = [len("".join(text for _, text in form).rstrip()) for form in forms]
    return next((form for form, length in zip(forms, lengths, strict=True) if not width or length <= width), forms[-1])


def _texts(panes: Sequence[tuple[str, str]], active: str, gap: str) -> list[tuple[str, str]]:
    return [(name, (f"[{title}]" if name == active else f" {title} ") + gap) for name, title in panes]
