"""Writes the folder of an imported task: the problem as a link, a reference.py that reads it, and a first solution.

The link makes the problem part of the source and of the task hash: if it changes, a new series begins. The solution
keeps the suite's signature, so that it can be pasted in and taken out unchanged.
"""

from __future__ import annotations

import io
import os
import shutil
import tokenize
from dataclasses import dataclass
from pathlib import Path

from kernbench.suites.problems import Problem
from kernbench.task.lookup import TASK_FILE, ProjectError

PROBLEM = "problem.py"
OLD, NEW = "Model", "ModelNew"
TASK = """name = "{name}"
summary = "KernelBench {title}"
entry = "ModelNew"
judge = "reference"
layout = "any"
libraries = true
{more}
[tolerance]
float32 = {{ atol = 1e-4, rtol = 1e-4 }}
float16 = {{ atol = 1e-2, rtol = 1e-2 }}
bfloat16 = {{ atol = 1e-2, rtol = 1e-2 }}

[[case]]
id = "{case}"
axes = {axes}
"""
REFERENCE = '''"""KernelBench {title}: problem.py has the model and its inputs, solution.py a class ModelNew."""

import problem

from harness.foreign.kernelbench import Problem

_problem = Problem(problem)
make_inputs, setup = _problem.make_inputs, _problem.setup


def ModelNew(model, **inputs):
    return model(*inputs.values())
'''


@dataclass(frozen=True)
class Form:
    """How a problem becomes a task."""

    scale: int = 1
    """Its sizes are divided by this."""
    device: str = "cuda"
    copy: bool = False
    """The task gets a copy of the problem instead of a link to it."""
    solution: Path | None = None
    """What to start with, instead of the problem itself."""


def write(problem: Problem, folder: Path, form: Form) -> Path:
    """Creates the task's folder; an existing one of the same problem is left as it is."""
    if folder.exists():
        if (folder / TASK_FILE).is_file() and same_problem(folder, problem):
            return folder
        raise ProjectError(f"{folder} already exists and is not this problem's; choose another with `--to`")
    own = form.solution
    text = own.read_text(encoding="utf-8") if own else first_solution(problem.path.read_text("utf-8"))
    case, axes = ("as_given", "{}") if form.scale == 1 else (f"scaled_{form.scale}", f"{{ scale = {form.scale} }}")
    more = "seeded = true\n" if problem.draws else ""
    more += 'device = "cpu"\n' if form.device == "cpu" else ""
    folder.mkdir(parents=True)
    try:
        _link(problem.path, folder / PROBLEM, form.copy)
        (folder / "reference.py").write_text(REFERENCE.format(title=problem.title), encoding="utf-8")
        (folder / "solution.py").write_text(text, encoding="utf-8")
        task = TASK.format(name=problem.name, title=problem.title, more=more, case=case, axes=axes)
        (folder / TASK_FILE).write_text(task, encoding="utf-8")
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _link(source: Path, target: Path, copy: bool) -> None:
    if copy:
        shutil.copyfile(source, target)
    else:
        target.symlink_to(os.path.relpath(source, target.parent.resolve()))


def same_problem(folder: Path, problem: Problem) -> bool:
    """Whether a task was made from this problem: by its link, or by the text of its copy."""
    place = folder / PROBLEM
    if not place.is_file():
        return False
    return place.resolve() == problem.path or place.read_bytes() == problem.path.read_bytes()


def first_solution(text: str) -> str:
    """The problem itself with its class renamed, which is right and as fast as the reference."""
    lines = text.splitlines(keepends=True)
    names = (token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.NAME)
    for row, column in reversed([token.start for token in names if token.string == OLD]):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column]}{NEW}{line[column + len(OLD) :]}"
    return "".join(lines)
