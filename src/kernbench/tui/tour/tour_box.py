"""The box of the tour: one step at a time, over the lower left of the screen. It goes on when the step was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter

from textual.widgets import Static

from kernbench.demo.tour_steps import Deed, Step
from kernbench.tui.text.spans import Span, content


class TourBox(Static):
    SCOPED_CSS = False
    DEFAULT_CSS = """
    TourBox {
        layer: tour;
        dock: bottom;
        width: 78;
        max-width: 100%;
        height: auto;
        margin-bottom: 2;
        padding: 0 1;
        background: $panel;
        border: round $accent;
        border-title-color: $accent;
        border-title-style: bold;
        border-subtitle-color: $text-muted;
    }
    MainScreen.-one TourBox { margin-bottom: 3; }
    App.-ascii TourBox { border: ascii $accent; }
    """

    def __init__(self, steps: Sequence[Step], keys: Mapping[str, str]) -> None:
        super().__init__(markup=False)
        self._steps, self._keys = steps, keys
        self._place = 0
        self._show()

    def happened(self, deed: Deed) -> None:
        """Go on if the step was waiting for this."""
        if self._steps[self._place].until == deed:
            self._place += 1
            self._show()

    def _show(self) -> None:
        last = self._place == len(self._steps) - 1
        self.border_title = f"tour {self._place + 1}/{len(self._steps)}"
        self.border_subtitle = "esc closes this" if last else "esc ends the tour"
        spans: list[Span] = []
        for text, action, _, _ in Formatter().parse(self._steps[self._place].says):
            spans += [(text, ""), (self._keys[action] if action else "", "accent")]
        self.update(content(spans))
