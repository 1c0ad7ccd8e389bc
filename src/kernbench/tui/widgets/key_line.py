"""The line of keys at the bottom, built from the active bindings.

Textual's footer redoes the layout whenever the focus moves, which sends every line; this sends one. On a narrow screen
the last keys are dropped, but help and quit stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from kernbench.tui.bindings import KEYS
from kernbench.tui.text.spans import Span, content

GAP = "  "
_ORDER = {binding.id: place for place, binding in enumerate(KEYS) if isinstance(binding, Binding) and binding.id}
STAYING = frozenset({"app.help", "app.quit", "dismiss(None)", "quit"})


class KeyLine(Static):
    def __init__(self) -> None:
        super().__init__(markup=False)
        self._keys: list[tuple[str, str, str]] = []
        """Key, its display name, what it does."""
        self._reworded: Mapping[str, str] = {}

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._show)
        self._show(self.screen)

    def on_resize(self) -> None:
        self._show(self.screen)

    def reword(self, words: Mapping[str, str]) -> None:
        """Other descriptions for some keys, by action id."""
        if words != self._reworded:
            self._reworded = words
            self._show(self.screen)

    def _show(self, screen: Screen[object]) -> None:
        if not self.app.screen_stack:  # the program is exiting
            return
        bound = [active.binding for active in screen.active_bindings.values() if active.binding.show]
        shown = [binding for binding in bound if not self._is_typed(binding, screen.focused)]
        # A binding with two keys appears twice; show its first key.
        first = {binding.action: binding for binding in reversed(shown)}
        bindings = [binding for binding in shown if first[binding.action] is binding]
        # Textual puts rebound keys at the end, where they would be dropped first.
        bindings.sort(key=lambda binding: (binding.action in STAYING, _ORDER.get(binding.id or "", -1)))
        keys = self._fitting(bindings)
        if keys != self._keys:
            self._keys = keys
            spans: list[Span] = []
            for _, name, description in keys:
                spans += [(name, "accent"), (f" {description}{GAP}", "")]
            self.update(content(spans), layout=False)

    def _is_typed(self, binding: Binding, focused: Widget | None) -> bool:
        """Whether the focused input takes the key as text; Textual knows that for letters, not for `slash`."""
        name = self.app.get_key_display(binding)
        character = name if len(name) == 1 and name.isascii() else None
        return focused is not None and focused.check_consume_key(binding.key, character)

    def _fitting(self, bindings: Sequence[Binding]) -> list[tuple[str, str, str]]:
        room = self.size.width or self.app.size.width
        kept = list(bindings)
        while True:
            keys = [(binding.key, self.app.get_key_display(binding), self._words(binding)) for binding in kept]
            give_way = [binding for binding in kept if binding.action not in STAYING]
            if not give_way or sum(len(f"{name} {words}{GAP}") for _, name, words in keys) - len(GAP) <= room:
                return keys
            kept.remove(give_way[-1])

    def _words(self, binding: Binding) -> str:
        return self._reworded.get(binding.id or "", binding.description)

    def on_click(self, event: events.Click) -> None:
        left = 0
        for key, name, description in self._keys:
            right = left + len(f"{name} {description}")
            if left <= event.x < right:
                self.app.simulate_key(key)
            left = right + len(GAP)
