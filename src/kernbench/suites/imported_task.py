"""Writes the folder of an imported task: the problem as links, a reference.py that reads it, and a first solution.

Links make the problem part of the source and of the task hash: if it changes, a new series begins. The solution keeps
the suite's signature, so that it can be pasted in and taken out unchanged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from kernbench.suites.formats.foreign_problem import Contents, Form, Problem
from kernbench.task.lookup import TASK_FILE, ProjectError


def write(problem: Problem, folder: Path, form: Form) -> Path:
    """Creates the task's folder; an existing one of the same problem is left as it is."""
    if problem.refused:
        raise ProjectError(f"{problem.title}: {problem.refused}")
    contents = _contents(problem, form)
    if folder.exists():
        if (folder / TASK_FILE).is_file() and all(
            _is_same(folder / name, path) for name, path in contents.links.items()
        ):
            return folder
        raise ProjectError(f"{folder} already exists and is not this problem's; choose another with `--to`")
    texts = {**contents.data, "reference.py": contents.reference, **contents.solution, TASK_FILE: contents.task}
    _refuse_names(problem, [*contents.links, *texts])
    folder.mkdir(parents=True)
    try:
        for name, path in contents.links.items():
            _link(path, folder / name, form.copy)
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("x", encoding="utf-8", newline="") as file:  # never through a link
                file.write(text)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _contents(problem: Problem, form: Form) -> Contents:
    """Foreign files may have anything in them; what their format does not foresee is refused too."""
    try:
        return problem.contents(form)
    except (ValueError, KeyError, TypeError) as cause:
        said = f"{type(cause).__name__}: {cause}"
        raise ProjectError(f"{problem.title}: its files are not as its format has them ({said})") from None


def _refuse_names(problem: Problem, names: Sequence[str]) -> None:
    """Names come from foreign files: each has to be a new file inside of the task."""
    places = [PurePosixPath(os.path.normpath(name)) for name in names]
    for name, place in zip(names, places, strict=True):
        if place.is_absolute() or ".." in place.parts or places.count(place) > 1:
            raise ProjectError(f"{problem.title}: its file {name} has no place in a task; rename it")


def _link(source: Path, target: Path, copy: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if copy:
        shutil.copyfile(source, target)
    else:
        target.symlink_to(os.path.relpath(source, target.parent.resolve()))


def _is_same(place: Path, problem: Path) -> bool:
    """Whether a file of a task is this one of a problem: by its link, or by the text of its copy."""
    return place.is_file() and (place.resolve() == problem or place.read_bytes() == problem.read_bytes())
