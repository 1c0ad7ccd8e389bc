"""Which task to open, when there are several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from kernbench.tui.keys import KeyLine
from kernbench.tui.rows import RowView
from kernbench.tui.spans import Span, clean, clip, pad
from kernbench.tui.theme import KERNBENCH


class TaskRow(NamedTuple):
    """One task as the picker shows it; all of it is text."""

    name: str
    folder: str
    best: str
    verdict: str
    age: str


class TaskList(RowView):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", key_display="enter", tooltip="open the task")
    ]

    def __init__(self, tasks: Sequence[TaskRow]) -> None:
        super().__init__(id="tasks")
        self._tasks = tasks
        self._name_width = min(max([len(task.name) for task in tasks], default=0), 30)

    def on_mount(self) -> None:
        self.reshape()

    def count(self) -> int:
        return len(self._tasks)

    def header(self, width: int) -> Sequence[Span]:
        titles = f"{pad('task', self._name_width)}  {'best':>7}  {pad('last', 10)}  {pad('age', 7)}  folder"
        return [(clip(titles, width), "head")]

    def line(self, index: int, width: int) -> Sequence[Span]:
        task = self._tasks[index]
        text = f"  {pad(clean(task.best), 7, right=True)}  {pad(clean(task.verdict), 10)}  {pad(clean(task.age), 7)}"
        room = width - self._name_width - len(text) - 2
        folder = clean(task.folder)
        tail = folder if len(folder) <= room else "…" + folder[len(folder) - room + 1 :] if room > 1 else ""
        name = pad(clean(task.name), self._name_width)
        return [(name, "strong"), (clip(text, width - self._name_width), ""), (f"  {tail}", "dim")]


class TaskPicker(App[str]):
    """Returns the folder chosen, or None."""

    CSS_PATH = "kernbench.tcss"
    CSS = "#title { height: 1; padding: 0 1; background: $panel; color: $primary; text-style: bold; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,escape", "quit", "quit")]

    def __init__(self, tasks: Sequence[tuple[str, str, str, str, str]]) -> None:
        super().__init__()
        self._tasks = [TaskRow(*task) for task in tasks]
        self.register_theme(KERNBENCH)
        self.theme = KERNBENCH.name

    def compose(self) -> ComposeResult:
        yield Static("kernbench: which task?", id="title", markup=False)
        yield TaskList(self._tasks)
        yield KeyLine()

    def on_row_view_opened(self, event: RowView.Opened) -> None:
        if self._tasks:
            self.exit(self._tasks[event.view.cursor].folder)
