"""The line of keys at the bottom, made from the bindings that are active.

Textual's own footer lays the screen out anew whenever the focus moves, which sends every line of it; this sends one.
"""

from __future__ import annotations

from textual import events
from textual.screen import Screen
from textual.widgets import Static

from kernbench.tui.spans import Span, content

GAP = "  "


class KeyLine(Static):
    def __init__(self) -> None:
        super().__init__(markup=False)
        self._keys: list[tuple[str, str, str]] = []
        """Key, its name, what it does."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._show)
        self._show(self.screen)

    def _show(self, screen: Screen[object]) -> None:
        shown = [active.binding for active in screen.active_bindings.values() if active.binding.show]
        # A binding with two keys comes twice; its first key is enough.
        first = {binding.action: binding for binding in reversed(shown)}
        bindings = [binding for binding in shown if first[binding.action] is binding]
        keys = [(binding.key, self.app.get_key_display(binding), binding.description) for binding in bindings]
        if keys != self._keys:
            self._keys = keys
            spans: list[Span] = []
            for _, name, description in keys:
                spans += [(name, "accent"), (f" {description}{GAP}", "")]
            self.update(content(spans), layout=False)

    def on_click(self, event: events.Click) -> None:
        left = 0
        for key, name, description in self._keys:
            right = left + len(f"{name} {description}")
            if left <= event.x < right:
                self.app.simulate_key(key)
            left = right + len(GAP)
