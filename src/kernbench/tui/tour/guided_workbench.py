"""The workbench with a tour on it. The tour only watches what happens; nothing works differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from kernbench.demo.tour_steps import Step
from kernbench.events import BuildFailed, Event, ProfileFailed, ProfileReady, ProfileStarted, RunFinished, RunStarted
from kernbench.tui import bindings
from kernbench.tui.app import Workbench
from kernbench.tui.pages.dialogs import RowPage
from kernbench.tui.pages.text_prompt import Ask
from kernbench.tui.tour.tour_box import TourBox

LOOK_SECONDS = 0.2
"""How often the tour looks whether a page or pane was opened."""


class GuidedWorkbench(Workbench):
    CSS_PATH = "../kernbench.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "end_tour", "end the tour", show=False, priority=True),
    ]

    def __init__(self, *args: Any, steps: Sequence[Step], **named: Any) -> None:
        super().__init__(*args, **named)
        self.tour: TourBox | None = TourBox(steps, self._keys())

    def _keys(self) -> dict[str, str]:
        """The key of every action; the user may have changed some."""
        keys = {item.id: self.get_key_display(item) for item in bindings.KEYS if isinstance(item, Binding) and item.id}
        own = {name: key.partition(",")[0] for name, key in self.settings.keys.items()}
        return {**keys, **own}

    def on_ready(self) -> None:
        if self.tour is None:
            return
        self.main.styles.layers = "default tour"
        self.main.mount(self.tour)
        self.engine.listen(self._watch)
        self.set_interval(LOOK_SECONDS, self._look)

    def _watch(self, event: Event) -> None:
        if self.tour is None:
            return
        if isinstance(event, RunStarted):
            self.tour.happened("save")
        elif isinstance(event, RunFinished | BuildFailed):
            self.tour.happened("run")
        elif isinstance(event, ProfileStarted | ProfileReady | ProfileFailed):
            self.tour.happened("profile")

    def _look(self) -> None:
        if self.tour is None:
            return
        if isinstance(self.screen, RowPage):
            self.tour.happened("row")
        elif isinstance(self.screen, Ask):
            self.tour.happened("why")
        elif self.screen is self.main and self.main.active == "iterations":
            self.tour.happened("iterations")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """esc ends the tour where it has nothing else to do."""
        if action != "end_tour":
            return super().check_action(action, parameters)
        main = self.main
        at_rest = self.screen is main and main.is_mounted and main.active == "results" and not main.single_pane
        return self.tour is not None and at_rest and not (main.filter_line.display or main.results.filter_text)

    async def action_end_tour(self) -> None:
        if self.tour is not None:
            box, self.tour = self.tour, None
            await box.remove()
