"""`--baseline git:REV`: the task's solution as it was at a revision, with today's reference and cases.

The folder of then is stored in the state folder by git's hash of it. What a run does with it is what it does with any
other file.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from harness.shared import taskfile
from harness.shared.task import Task
from harness.shared.taskfile.values import TaskError
from harness.shared.used_files import SOLUTION, code_of, syntax_tree, text_of
from kernbench.machine import git_folder
from kernbench.machine.git_folder import NotThere, OldFolder, Revision
from kernbench.task import snapshot
from kernbench.task.baseline import Baseline

PREFIX = "git:"
STORED = "revisions"
MOST_STORED = 20
RECENT = 3600.0
"""Seconds for which a stored folder that was used stays in any case: another workbench may need it."""
SIMPLE = re.compile(r"[\w./~^-]+")
"""A revision that is shown as it was given; any other is shown by its commit."""
SHOWN = re.compile(r"(.+)@[0-9a-f]{8}")
"""As `name` below has it, so that a name from the log or the screen can be given again."""
COMPARED = ("device", "threads", "mutates", "outputs", "layout", "dtype", "judge", "seeded", "returned", "tolerance")
"""What decides how both sides are run and judged; today's counts."""


def parse(text: str, task: Task, state: Path) -> Baseline:
    """Any baseline; raises UserError."""
    if not text.startswith(PREFIX):
        return Baseline.parse(text, task)
    name = text.removeprefix(PREFIX)
    shown = SHOWN.fullmatch(name)
    folder = Path(task.folder)
    revision = Revision.of(shown[1] if shown else name, folder)
    found = of(git_folder.read(folder, revision), task, state)
    if shown and found.name != text:
        again = f"`--baseline {PREFIX}{shown[1]}` takes it as it is now"
        raise NotThere(f"{task.name} at {shown[1]} has changed since; {again}")
    return found


def of(old: OldFolder, task: Task, state: Path) -> Baseline:
    """Stores the folder; raises NotThere if it had no solution."""
    if SOLUTION not in old.files:
        raise NotThere(f"{task.name} had no {SOLUTION} at {old.revision.name}")
    folder = state.resolve() / STORED / old.key
    _remove_old(folder.parent)
    snapshot.store(old.files, folder)
    commit = old.revision.commit[:12]
    name = commit if old.revision.is_bare or not SIMPLE.fullmatch(old.revision.name) else old.revision.name
    notes = tuple(_differences(task, folder, name))
    return Baseline(f"{PREFIX}{name}@{old.key[:8]}", folder / SOLUTION, old.key, f"{PREFIX}{commit}", notes)


def _remove_old(stored: Path) -> None:
    """All but the last few, and those in use."""
    with contextlib.suppress(OSError):
        used = sorted((path.stat().st_mtime, path) for path in stored.iterdir())
        for at, path in used[:-MOST_STORED]:
            if time.time() - at > RECENT:
                shutil.rmtree(path, ignore_errors=True)


def _differences(task: Task, folder: Path, name: str) -> Iterator[str]:
    """What was different then about the task, as opposed to its solution."""
    try:
        then = taskfile.load(folder)
    except TaskError as problem:
        yield f"the task cannot be read as it was at {name} ({problem.key or problem.file.name}: {problem.problem})"
        return
    if then.entry != task.entry:
        yield f"the entry was {then.entry} at {name} and is {task.entry} now: the two cannot be compared"
    before, now = (_arguments(Path(item.folder), item.entry) for item in (then, task))
    if None not in (before, now) and before != now:
        yield f"{task.entry} took ({before}) at {name} and takes ({now}) now: the solution of then may not run"
    changed = [key for key in COMPARED if getattr(then, key) != getattr(task, key)]
    rows = {case.id: case.axes for case in then.cases}, {case.id: case.axes for case in task.cases}
    changed += ["cases"] if rows[0] != rows[1] else []
    files = sorted({*then.files, *task.files})
    changed += [file for file in files if _code(folder / file) != _code(Path(task.folder) / file)]
    if changed:
        yield f"different at {name}: {', '.join(changed)}; both sides run with today's"


def _code(path: Path) -> bytes:
    return code_of(path.name, os.fsencode(text_of(path)))


def _arguments(folder: Path, entry: str) -> str | None:
    """The arguments of the reference's entry; None if it is not a function that can be read."""
    try:
        tree = syntax_tree(text_of(folder / "reference.py"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry)
    for node in found:
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        return ", ".join(argument.arg for argument in every)
    return None
