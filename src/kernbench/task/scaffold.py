"""`kernbench new`: creates a ready-to-run task, from a template or as a copy of another task.

The templates are whole tasks named my_kernel, shipped as data; a new task is one of them with its name filled in.
Existing files are never overwritten.
"""

from __future__ import annotations

import ast
import keyword
import re
import shutil
from functools import partial
from pathlib import Path

from kernbench.task.lookup import PACKAGE, TASK_FILE, TASKS_FOLDER, ProjectError

TEMPLATES = PACKAGE / "templates"
TEMPLATE_NAME = "my_kernel"
NOT_COPIED = shutil.ignore_patterns("ITERATIONS.md", "exports", "__pycache__", ".*", "*.pyc")
"""History of the other task; .kernbench is among the hidden files."""
RUNS = "runs.jsonl"


def create(name: str, folder: Path, source: Path | None = None, *, template: str = "triton") -> Path:
    """Creates the task in folder/kernels, or in folder if there is no kernels, and returns its path.

    `source` is the folder of a task to copy. Without it the template is copied: triton, cuda or host (C++ for the CPU).
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        why = "it is a Python keyword" if keyword.iskeyword(name) else "use letters, digits and underscores"
        raise ProjectError(f"{name!r} is not a valid task name: {why}; my_kernel would work")
    if source is None and name in _taken(TEMPLATES / template):
        raise ProjectError(f"{name!r} is not a valid task name: the template already uses it; choose another")
    place = folder / TASKS_FOLDER
    target = (place if place.is_dir() else folder) / name
    try:
        target.mkdir()
    except FileExistsError:
        raise ProjectError(f"{target} already exists; choose another name") from None
    try:
        shutil.copytree(source or TEMPLATES / template, target, ignore=partial(_not_copied, target), dirs_exist_ok=True)
        if source is None:
            _fill_in(target, name)
        else:
            _rename(target / TASK_FILE, name)
    except OSError as problem:
        shutil.rmtree(target, ignore_errors=True)
        cause = problem.args[0][0][2] if isinstance(problem, shutil.Error) else problem
        raise ProjectError(f"cannot write {target}: {cause}") from None
    return target


def _taken(template: Path) -> set[str]:
    """Names imported or defined in the template, which an entry of the task's name would hide."""
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


def _not_copied(target: Path, folder: str, names: list[str]) -> set[str]:
    """Skips state folders too: those with runs in them, whatever `--state` named them; what is not a file; and the new
    task, which may be inside the old one."""
    paths = [Path(folder) / name for name in names]
    others = {path.name for path in paths if (path / RUNS).is_file() or not (path.is_dir() or path.is_file())}
    others |= {path.name for path in paths if path.name not in others and path.samefile(target)}
    return others | NOT_COPIED(folder, names)


def _fill_in(target: Path, name: str) -> None:
    for path in target.iterdir():
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(TEMPLATE_NAME, name), encoding="utf-8")


def _rename(path: Path, name: str) -> None:
    """Changes the top-level `name`; a task without one has its folder's name anyway."""
    head, table, rest = re.split(r"(?m)(^\s*\[|\Z)", path.read_text(encoding="utf-8"), maxsplit=1)
    head = re.sub(r"(?m)^(\s*name\s*=\s*)(\"[^\"\n]*\"|'[^'\n]*')", rf'\g<1>"{name}"', head, count=1)
    path.write_text(head + table + rest, encoding="utf-8")
