"""`kernbench export --format kernelbench`: the solution of an imported task, as its suite takes it."""

from __future__ import annotations

from harness.shared.regular_file import read_bytes
from harness.shared.task import Task
from harness.shared.used_files import LARGEST_FILE
from kernbench.export.formats import ExportError
from kernbench.log import stored_sources
from kernbench.log.runs.journal import Journal
from kernbench.suites.problems import FORMATS


def exported(task: Task, journal: Journal, word: str, reference: str | None) -> bytes | dict[str, bytes]:
    """Of the source that is named; otherwise of the best, or of the files as they are if no source is best. Several
    files go by their path in the folder to write."""
    own = {form.EXPORT for form in FORMATS if task.origin.get("format") == form.NAME}
    if word not in own:
        kind = f"export it with `--format {own.pop()}`" if own else "only tasks made by `kernbench import` can be"
        raise ExportError(f"{task.name} cannot be exported as {word}; {kind}")
    form = next(form for form in FORMATS if word == form.EXPORT)
    try:
        point = stored_sources.find(task, journal, reference or "best")
    except stored_sources.SourceError:
        if reference is not None:
            raise
        point = stored_sources.find(task, journal, "now")
    names = stored_sources.solution_files(point, task)
    return form.exported(
        {path.as_posix(): read_bytes(point.folder / path, LARGEST_FILE) for path in names}, task.origin
    )
