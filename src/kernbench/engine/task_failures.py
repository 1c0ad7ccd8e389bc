"""Why nothing was run. Unlike a notice this stays on the screen, because the rows shown belong to older files or to a
run that broke down."""

from __future__ import annotations

from pathlib import Path

from harness.shared.errors import UserError, Where
from harness.shared.taskfile import TaskError
from kernbench import crash_report
from kernbench.events import BuildFailed


def bad_task(problem: TaskError, folder: Path) -> BuildFailed:
    said = f"{problem.key}: {problem.problem}" if problem.key else problem.problem
    try:
        where = Where(str(problem.file.relative_to(folder.resolve())))
    except ValueError:
        return BuildFailed("", "", str(problem), status="bad_task")
    return BuildFailed("", "", said, where, status="bad_task")


def broken_down(problem: Exception, state: Path) -> BuildFailed:
    if isinstance(problem, UserError):
        said = f"{problem}; fix that and try again"
    elif isinstance(problem, OSError):
        place = f"{problem.filename or state}: {problem.strerror}"
        said = f"nothing was run: {place}; fix that and try again"
    else:
        said = crash_report.sentence(problem)
    return BuildFailed("", "", said)
