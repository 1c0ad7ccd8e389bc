"""One line that names the panes of which one is shown: `[Results]  Iterations  Log`."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message
from textual.widgets import Static

from kernbench.tui.text.spans import Span, content

GAP = " "


class TabLine(Static):
    class Picked(Message):
        def __init__(self, pane: str) -> None:
            self.pane = pane
            super().__init__()

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, markup=False)
        self._shown: list[tuple[str, str]] = []

    def show(self, panes: Sequence[tuple[str, str]], active: str) -> None:
        """Panes as (name, title)."""
        texts = [(name, f"[{title}]" if name == active else f" {title} ") for name, title in panes]
        if texts != self._shown:
            self._shown = texts
            spans: list[Span] = [(text, "head" if name == active else "dim") for name, text in texts]
            self.update(content([part for span in spans for part in (span, (GAP, ""))]), layout=False)

    def on_click(self, event: events.Click) -> None:
        left = 0
        for name, text in self._shown:
            if left <= event.x < left + len(text):
                self.post_message(self.Picked(name))
            left += len(text) + len(GAP)
