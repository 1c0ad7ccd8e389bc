"""Finds tasks, and the folder that keeps a task's runs. Of a task it reads only the name in task.toml.

A task is named by a path (its folder, or a file in it), by its folder's name, or by the name in its task.toml. Names
are looked up here, in ./kernels, in the same two places of each folder above up to the repository's root, and last
among the tasks that kernbench ships. In a checkout the shipped tasks are kernels/ and may be edited; in an installed
package they are data and can only be copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.taskfile.values import TaskError, toml

TASK_FILE = "task.toml"
TASKS_FOLDER = "kernels"
STATE_FOLDER = ".kernbench"
PACKAGE = Path(__file__).resolve().parents[1]


class ProjectError(UserError):
    """A task or folder cannot be used; one sentence that also says what to do."""


def find_task(task: str | None = None, cwd: Path | None = None, *, to_edit: bool = True) -> Path:
    """The folder of the task that `task` names; inside a task's folder it may be omitted."""
    cwd = (cwd or Path.cwd()).absolute()
    folder = _only_task(cwd) if task is None else _named_task(task, cwd)
    if to_edit and read_only(folder):
        copy = f"`kernbench new NAME --from {folder.name}`"
        raise ProjectError(f"{folder.name} ships with kernbench and cannot be edited in place; copy it with {copy}")
    return folder


def list_tasks(cwd: Path | None = None) -> list[Path]:
    """Every task that can be opened from here, nearest first; of two with the same name, the nearer."""
    by_name: dict[str, Path] = {}
    for folder in _tasks_around((cwd or Path.cwd()).absolute()):
        if not read_only(folder):
            by_name.setdefault(folder.name, folder)
    return list(by_name.values())


def shipped_tasks() -> dict[str, Path]:
    """The tasks that come with kernbench, by name."""
    return {path.parent.name: path.parent for path in sorted(shipped_folder().glob(f"*/{TASK_FILE}"))}


def shipped_folder() -> Path:
    installed, checkout = PACKAGE / "tasks", PACKAGE.parents[1] / TASKS_FOLDER
    return installed if installed.is_dir() else checkout


def read_only(folder: Path) -> bool:
    """Whether the task is inside the installed package, where the next update would undo an edit."""
    return folder.resolve().is_relative_to(PACKAGE)


def state_dir(folder: Path, override: Path | None = None) -> Path:
    """The folder for the task's runs; created on first use and hidden from git."""
    state = override or folder / STATE_FOLDER
    try:
        make_state(state, parents=True)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise ProjectError(f"cannot create {state} ({reason}); use `--state DIR` to keep runs elsewhere") from None
    return state


def cannot_be_written(state: Path, problem: OSError) -> ProjectError:
    """Puts the reason first: a line on the screen has no room for a long path."""
    reason = problem.strerror or str(problem)
    return ProjectError(
        f"nothing was run ({reason}): cannot write to {state}; use `--state DIR` to keep runs elsewhere"
    )


def make_state(state: Path, parents: bool = False) -> None:
    """Creates the folder if it is missing, hidden from git; it may have been removed while a workbench was open.

    Creates its parents only on request: a task's folder that was moved away must not reappear empty.

    An existing folder with another name belongs to the user and is not hidden from git.
    """
    is_ours = state.name == STATE_FOLDER or not state.is_dir()
    state.mkdir(parents=parents, exist_ok=True)
    hidden = state / ".gitignore"
    if is_ours and not hidden.exists():
        with contextlib.suppress(OSError):  # a full disk: the next caller tries again
            hidden.write_text("*\n", encoding="utf-8")


def repository_root(cwd: Path) -> Path | None:
    """The nearest folder at or above this one that holds a .git."""
    return next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), None)


def _named_task(task: str, cwd: Path) -> Path:
    path = cwd / task
    with contextlib.suppress(RuntimeError):  # a `~user` that does not exist
        path = cwd / Path(task).expanduser()
    if path.is_file():
        folder = _enclosing_task(path.parent)
        if folder is None:
            hint = f"`kernbench import {task}` makes a task of a KernelBench problem"
            raise ProjectError(f"{task} is not in a task's folder: no {TASK_FILE} next to it or above it; {hint}")
        return folder
    if (path / TASK_FILE).is_file():
        return path.resolve()
    if task == path.name:
        folders = (place / task for place in places(cwd))
        named = next((folder for folder in folders if (folder / TASK_FILE).is_file()), shipped_tasks().get(task))
        if named is not None:
            return named.resolve()
    if called := _called(task, cwd):
        return called
    if path.is_dir():
        hint = f"`kernbench new NAME` creates a task, `kernbench import {task}` takes other suites' problems"
        raise ProjectError(f"{task} is a folder without a {TASK_FILE}; {hint}")
    raise ProjectError(f"no task {task!r} here; {_what_is_here(cwd)}")


def _called(name: str, cwd: Path) -> Path | None:
    """The task whose task.toml gives it this name."""
    around = dict.fromkeys(folder.resolve() for folder in _tasks_around(cwd))
    found = [folder for folder in around if _name_in(folder / TASK_FILE) == name]
    if len(found) > 1:
        raise ProjectError(f"{len(found)} tasks are named {name!r}: {' and '.join(map(str, found))}; give a folder")
    return found[0] if found else None


def _name_in(path: Path) -> str | None:
    """The name in a task.toml; None if it has none or cannot be read, which opening the task reports."""
    try:
        name = toml(path).get("name")
    except TaskError:
        return None
    return name if isinstance(name, str) else None


def _only_task(cwd: Path) -> Path:
    around = _enclosing_task(cwd)
    if around is not None:
        return around
    tasks = list_tasks(cwd)
    if len(tasks) == 1:
        return tasks[0].resolve()
    raise ProjectError(f"which task? {_what_is_here(cwd)}")


def _what_is_here(cwd: Path) -> str:
    names = [folder.name for folder in list_tasks(cwd)]
    if names:
        return f"available: {', '.join(names)}"
    return f"`kernbench new NAME` creates one, `--from` copies one of {', '.join(shipped_tasks()) or 'yours'}"


def _enclosing_task(folder: Path) -> Path | None:
    return next((place.resolve() for place in _upwards(folder) if (place / TASK_FILE).is_file()), None)


def _tasks_around(cwd: Path) -> Iterator[Path]:
    """The task that contains this folder, those in all places, nearest first, and the shipped ones."""
    if around := _enclosing_task(cwd):
        yield around
    for place in places(cwd):
        yield from sorted(path.parent for path in place.glob(f"*/{TASK_FILE}"))
    yield from shipped_tasks().values()


def places(cwd: Path) -> Iterator[Path]:
    """Folders whose subfolders may be tasks, nearest first."""
    for folder in _upwards(cwd):
        yield folder
        yield folder / TASKS_FOLDER


def _upwards(folder: Path) -> Iterator[Path]:
    """This folder and those above it up to the repository's root; outside a repository only this one and its parent."""
    root = repository_root(folder)
    for place in (folder, *folder.parents):
        yield place
        if place == (root or folder.parent):
            return
