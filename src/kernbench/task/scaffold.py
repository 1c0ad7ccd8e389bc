"""`kernbench new`: writes a task that runs at once, from a template or as a copy of another task.

The templates are whole tasks named my_kernel that lie beside this file as data; a new task is one of them with its own
name put in. Nothing that exists is ever written over.
"""

from __future__ import annotations

import ast
import keyword
import re
import shutil
from pathlib import Path

from kernbench.task.lookup import PACKAGE, TASK_FILE, TASKS_FOLDER, ProjectError

TEMPLATES = PACKAGE / "templates"
TEMPLATE_NAME = "my_kernel"
NOT_COPIED = shutil.ignore_patterns("ITERATIONS.md", "exports", "__pycache__", ".*", "*.pyc")
"""What was made with the other task; .kernbench is a hidden one."""
RUNS = "runs.jsonl"


def create(name: str, folder: Path, source: Path | None = None, *, template: str = "triton") -> Path:
    """Writes the task into folder/kernels (or into folder where there is no kernels) and returns where it lies.

    `source` is the folder of a task to copy; without one, a template is: triton, cuda, or host (C++ for the CPU).
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        why = "it is a word of Python's" if keyword.iskeyword(name) else "use letters, digits and underscores"
        raise ProjectError(f"{name!r} cannot name a task: {why}; my_kernel would do")
    if source is None and name in _taken(TEMPLATES / template):
        raise ProjectError(f"{name!r} cannot name a task: its files use that name for something else; choose another")
    place = folder / TASKS_FOLDER
    target = (place if place.is_dir() else folder) / name
    if target.exists():
        raise ProjectError(f"{target} is already there; choose another name, nothing is written over")
    try:
        shutil.copytree(source or TEMPLATES / template, target, ignore=_not_copied)
        if source is None:
            _fill_in(target, name)
        else:
            _rename(target / TASK_FILE, name)
    except (OSError, shutil.Error) as problem:
        raise ProjectError(f"{target} cannot be written: {problem}") from None
    return target


def _taken(template: Path) -> set[str]:
    """Names of the modules that the entry, which is called like the task, would hide: imported or their own."""
    names: set[str] = set()
    for path in template.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names - {TEMPLATE_NAME}


def _not_copied(folder: str, names: list[str]) -> set[str]:
    """A folder with runs in it is a state folder, whatever `--state` called it."""
    states = {name for name in names if (Path(folder) / name / RUNS).is_file()}
    return states | NOT_COPIED(folder, names)


def _fill_in(target: Path, name: str) -> None:
    for path in target.iterdir():
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(TEMPLATE_NAME, name), encoding="utf-8")


def _rename(path: Path, name: str) -> None:
    """Changes the top-level `name`; a task without one is named by its folder anyway."""
    head, table, rest = re.split(r"(?m)(^\s*\[|\Z)", path.read_text(encoding="utf-8"), maxsplit=1)
    head = re.sub(r"(?m)^(\s*name\s*=\s*)(\"[^\"\n]*\"|'[^'\n]*')", rf'\g<1>"{name}"', head, count=1)
    path.write_text(head + table + rest, encoding="utf-8")
