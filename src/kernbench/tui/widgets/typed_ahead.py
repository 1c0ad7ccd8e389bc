"""Keys that were typed before a box had opened reach the box.

Over a slow line several keys arrive at once. Textual sends all of them to the widget that has the focus then; those
after the one that opens a box come back unused, and would be lost. They are kept until the box has the focus.
"""

from __future__ import annotations

from functools import partial

from textual import events
from textual.app import App, ReturnType
from textual.widget import Widget

LOOK_AGAIN_S, MOST_LOOKS = 0.01, 50
"""A box without a field never takes the focus; it gets the keys after half a second."""


class TypedAhead(App[ReturnType]):
    _kept: tuple[events.Key, ...] = ()
    """For the box that opens, in order."""

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            if self._kept:  # must not overtake them
                self._kept += (event,)
                return
            vars(event)["aimed_at"] = self._aim()
        await super().on_event(event)

    async def on_key(self, event: events.Key) -> None:
        """A key that its widget did not take."""
        aimed, now = vars(event).get("aimed_at"), self._aim()
        if aimed is None or aimed is now or not (self._is_covered(aimed) or _takes_text(now)):
            return
        event.stop()
        event.prevent_default()
        self._kept += (events.Key(event.key, event.character),)
        if len(self._kept) == 1:
            await self._hand_over()

    def _aim(self) -> Widget:
        return self.focused or self.screen

    def _is_covered(self, widget: Widget) -> bool:
        return not widget.is_attached or widget.screen is not self.screen

    async def _hand_over(self, looks: int = 0) -> None:
        if self.focused is None and looks < MOST_LOOKS:
            self.set_timer(LOOK_AGAIN_S, partial(self._hand_over, looks + 1))
            return
        keys, self._kept = self._kept, ()
        for key in keys:
            await self.on_event(key)


def _takes_text(widget: Widget) -> bool:
    """Not by its class: Textual's text area takes 15 ms to import, and the first paint needs none."""
    return widget.check_consume_key("a", "a")
