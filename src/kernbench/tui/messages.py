"""What reaches the app from outside its loop, and what it is given to work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.message import Message

from kernbench.machine.telemetry import Sample
from kernbench.tui.pages.picker import TaskRow
from kernbench.tui.state.engine_protocol import Engine


class EventsArrived(Message):
    """The engine said something: it waits in the inbox."""


class Sampled(Message):
    """The machine was read; only the newest counts."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Sampled)


class Tasks:
    """The tasks that `T` offers, and how one is opened; without any, `T` says why."""

    def __init__(self, rows: Callable[[], Sequence[TaskRow]], open_task: Callable[[str], Engine]) -> None:
        self.rows, self.open = rows, open_task
