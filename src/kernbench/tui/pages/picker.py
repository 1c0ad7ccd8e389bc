"""The task picker, shown at the start and at `T`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from harness.shared.errors import UserError
from harness.shared.taskfile import values
from kernbench import settings
from kernbench.tui.pages.dialogs import HELP, AnsweredOnce
from kernbench.tui.safe_app import SafeApp
from kernbench.tui.text.spans import Span, clean, clip, pad
from kernbench.tui.theme import KERNBENCH, default, own_colours_only
from kernbench.tui.widgets.filter_line import FilterLine
from kernbench.tui.widgets.key_line import KeyLine
from kernbench.tui.widgets.row_view import RowView


class TaskRow(NamedTuple):
    """One task as the picker shows it, all as text."""

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
        self._all = tasks
        self._abouts = {task.folder: (summary_of(task.folder), place_of(task, tasks)) for task in tasks}
        self._name_width = min(max([len(task.name) for task in tasks], default=0), 30)

    def on_mount(self) -> None:
        self.reshape()

    @property
    def selected(self) -> TaskRow | None:
        return self._tasks[self.cursor] if self._tasks else None

    def show_only(self, text: str) -> None:
        """Show tasks with every word in name, folder or summary; the cursor stays on its task if it still shows."""
        words, before = text.casefold().split(), self.selected
        self._tasks = [task for task in self._all if all(word in self._searched(task) for word in words)]
        self.cursor = self._tasks.index(before) if before in self._tasks else 0
        self.reshape()

    def _searched(self, task: TaskRow) -> str:
        return f"{task.name} {task.folder} {self._abouts[task.folder][0]}".casefold()

    def lines(self) -> int:
        return max(self.count(), 1)

    def count(self) -> int:
        return len(self._tasks)

    def header(self, width: int) -> Sequence[Span]:
        titles = f"{pad('task', self._name_width)}  {'best':>7}  {pad('last', 16)}  {pad('age', 7)}  summary"
        return [(clip(titles, width), "head")]

    def line(self, index: int, width: int) -> Sequence[Span]:
        if not self._tasks:
            return [(clip("no task matches; esc: show all", width), "dim")]
        task = self._tasks[index]
        text = f"  {pad(clean(task.best), 7, right=True)}  {pad(clean(task.verdict), 16)}  {pad(clean(task.age), 7)}"
        about = self._about(task, width - self._name_width - len(text) - 2)
        name = pad(clean(task.name), self._name_width)
        return [(name, "strong"), (clip(text, width - self._name_width), ""), (f"  {about}" if about else "", "dim")]

    def _about(self, task: TaskRow, room: int) -> str:
        """The task's summary, and its folder if both fit; a folder alone keeps its end. For tasks that share a name,
        the part in which their folders differ comes first."""
        summary, place = self._abouts[task.folder]
        if place:
            return clip(f"{place}  {summary}".rstrip(), room)
        folder = clean(task.folder)
        if not summary:
            return folder if len(folder) <= room else "…" + folder[len(folder) - room + 1 :] if room > 1 else ""
        both = f"{summary}  {folder}"
        return both if cell_len(both) <= room else clip(summary, room)


def place_of(task: TaskRow, tasks: Sequence[TaskRow]) -> str:
    """Its path below the folder it shares with tasks of the same name; empty if the name is unique."""
    alike = [other.folder for other in tasks if other.name == task.name]
    return clean(os.path.relpath(task.folder, os.path.commonpath(alike))) if len(alike) > 1 else ""


def summary_of(folder: str) -> str:
    """The summary in task.toml; empty if it has none or cannot be read."""
    try:
        return clean(str(values.toml(Path(folder, "task.toml")).get("summary", "")))
    except UserError:
        return ""


class TaskScreen(AnsweredOnce[str | None]):
    """Returns the chosen folder, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "back", "back"),
        Binding("q", "dismiss(None)", "back", show=False),
        HELP,
    ]

    def __init__(self, tasks: Sequence[TaskRow], current: str | None = None) -> None:
        super().__init__()
        self._tasks, self._current = tasks, current

    def compose(self) -> ComposeResult:
        yield Static("kernbench: choose a task", id="title", markup=False)
        yield TaskList(self._tasks)
        yield FilterLine("filter by name, folder or summary; enter: keep, esc: show all")
        yield KeyLine()

    def on_mount(self) -> None:
        folders = [task.folder for task in self._tasks]
        if self._current in folders:
            self.query_one(TaskList).move_to(folders.index(self._current))

    def on_row_view_opened(self, event: RowView.Opened) -> None:
        if isinstance(event.view, TaskList) and event.view.selected is not None:
            self.dismiss(event.view.selected.folder)

    def action_back(self) -> None:
        """A kept filter goes first, as in the results."""
        line = self.query_one(FilterLine)
        if line.value:
            line.value = ""
        else:
            self.dismiss(None)

    def action_filter(self) -> None:
        line = self.query_one(FilterLine)
        line.display = True
        self.set_focus(line)

    @on(FilterLine.Changed)
    def narrow(self, event: FilterLine.Changed) -> None:
        self.query_one(TaskList).show_only(event.value)

    @on(FilterLine.Left)
    def leave_filter(self, event: FilterLine.Left) -> None:
        line = self.query_one(FilterLine)
        if not event.kept:
            line.value = ""
        line.display = False
        self.set_focus(self.query_one(TaskList))


class TaskPicker(SafeApp[str | None]):
    """The picker alone, before a task is open."""

    CSS_PATH = "../kernbench.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self, tasks: Sequence[tuple[str, str, str, str, str]], theme: str | None = None, ascii_only: bool = False
    ) -> None:
        super().__init__(ascii_only, ansi_color=own_colours_only(os.environ))
        self._tasks = [TaskRow(*task) for task in tasks]
        self.register_theme(KERNBENCH)
        # The workbench reports an unknown theme when it opens.
        self.theme = theme if theme in self.available_themes else default(os.environ, self.available_themes)

    def on_mount(self) -> None:
        self.push_screen(TaskScreen(self._tasks), self._leave)

    def _leave(self, folder: str | None) -> None:
        """Opening the workbench takes a moment: until then the terminal shows what it opens."""
        name = next((task.name for task in self._tasks if task.folder == folder), None)
        self.exit(folder, message=Text(f"opening {clean(name)}") if name else None)

    def action_help(self) -> None:
        # Imported here because they import the panes, which the picker rarely needs.
        from kernbench.tui.pages import user_keys
        from kernbench.tui.pages.help import Help, key_rows

        try:
            keys = user_keys.renamed(settings.load()).keys
        except settings.SettingsError:  # the workbench reports what is wrong
            keys = {}
        self.push_screen(Help(key_rows(self.get_key_display, keys)))
