"""Messages that reach the app from outside its event loop, and the tasks it can open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.message import Message

from kernbench.machine.telemetry import Sample
from kernbench.tui.state.engine_protocol import Engine

if TYPE_CHECKING:
    from kernbench.tui.pages.picker import TaskRow  # imported only when the picker opens


class EventsArrived(Message):
    """New events of the engine are in the inbox."""


class Sampled(Message):
    """A new sample of the machine; it replaces one not handled yet."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Sampled)


class Tasks:
    """The tasks that `T` offers, and how to open one."""

    def __init__(self, rows: Callable[[], Sequence[TaskRow]], open_task: Callable[[str], Engine]) -> None:
        self.rows, self.open = rows, open_task
