"""Which tasks are served: by name, all in a folder, or all that can be opened from here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.shared.errors import UserError
from kernbench.task import lookup

MOST_NAMED = 12
"""How many tasks a sentence lists."""


class ServedTasks:
    def __init__(self, folders: Sequence[Path]) -> None:
        self._by_name: dict[str, Path] = {}
        for folder in dict.fromkeys(folder.resolve() for folder in folders):
            if (other := self._by_name.setdefault(folder.name, folder)) != folder:
                raise UserError(f"two tasks are called {folder.name}: {other} and {folder}; serve one of them")
        if not self._by_name:
            raise UserError("no tasks here; `kernbench new NAME` creates one")

    @property
    def folders(self) -> list[Path]:
        return list(self._by_name.values())

    def folder(self, name: str) -> Path:
        """Of the task with this name; the only task needs none."""
        if not name and len(self._by_name) == 1:
            return next(iter(self._by_name.values()))
        if name not in self._by_name:
            names = list(self._by_name)
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            what = f"no task {name!r} is served" if name else "which task?"
            raise UserError(f"{what}; choose one of {', '.join(names[:MOST_NAMED])}{more}")
        return self._by_name[name]


def find(words: Sequence[str], cwd: Path | None = None) -> ServedTasks:
    """A word is a task, or a folder of tasks; without words, the task that contains this folder, or all around it."""
    cwd = (cwd or Path.cwd()).absolute()
    if words:
        return ServedTasks([folder for word in words for folder in _named(word, cwd)])
    try:
        return ServedTasks([lookup.find_task(None, cwd)])
    except lookup.ProjectError:  # none, or several
        return ServedTasks(lookup.list_tasks(cwd))


def _named(word: str, cwd: Path) -> list[Path]:
    place = cwd / Path(word).expanduser()
    if place.is_dir() and not (place / lookup.TASK_FILE).is_file():
        inside = sorted(path.parent for path in place.glob(f"*/{lookup.TASK_FILE}"))
        if inside:
            return [lookup.find_task(str(folder)) for folder in inside]
    return [lookup.find_task(word, cwd)]
