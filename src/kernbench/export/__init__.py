"""Exports a task's log: `export` writes it, `text` returns it, in the formats of FORMATS.

    export(task, state, "html", Path("softmax.html"), force=False) -> [Path("softmax.html")]
    text(task, state, "csv") -> str

`task` is the loaded Task, `state` its folder of runs (.kernbench). `pr` is a folder, the others are files; for `pr`,
`text` returns the body of the pull request. `before` and `after` choose the two sources that `pr` compares: a number, a
hash or a word; by default the first source of the current series and its best. `anyway` lets `pr` show a source that a
model does not keep, and leaves a line in runs.jsonl. `default_target(task, state, format)` is
where the screen's `w` writes: exports/ in the folder of runs, which git ignores. Every failure is an ExportError (or
another UserError) of one sentence; existing files are not overwritten without `force`, and no file is ever left half
written. Only the formats that need pandas and Jinja2 import them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kernbench.export.formats import FORMATS, ExportError

if TYPE_CHECKING:
    from harness.shared.task import Task
    from kernbench.export.collect import Collected

__all__ = ["FORMATS", "ExportError", "default_target", "export", "text"]

BODY = "PULL_REQUEST.md"


def export(
    task: Task,
    state: Path,
    format: str,  # noqa: A002 - as the command names it
    target: Path,
    *,
    force: bool = False,
    before: str | None = None,
    after: str | None = None,
    anyway: bool = False,
) -> list[Path]:
    """Writes the log and returns the paths of the new files."""
    from kernbench.export.collect import collect
    from kernbench.export.write_files import write_all

    if format == "pr":
        from kernbench.export import pull_request

        made = pull_request.make(collect(task, state), before, after, anyway)
        files: dict[str, str | bytes] = {**made.files, **made.images}
        paths = write_all({target / name: content for name, content in files.items()}, force, task, state)
        made.note(state)
        return paths
    _refuse_folder(target)
    return write_all({target: text(task, state, format)}, force, task, state)


def text(
    task: Task,
    state: Path,
    format: str,  # noqa: A002
    *,
    before: str | None = None,
    after: str | None = None,
    anyway: bool = False,
) -> str:
    """The export as text."""
    from kernbench.export.collect import collect

    about = collect(task, state, needs_runs=format == "pr")
    if format == "pr":
        from kernbench.export import pull_request

        made = pull_request.make(about, before, after, anyway)
        made.note(state)
        return made.files[BODY]
    return _maker(format)(about)


def default_target(task: Task, state: Path, format: str) -> Path:  # noqa: A002
    name = f"{task.name}-pr" if format == "pr" else f"{task.name}.{format}"
    return state / "exports" / name


def _maker(format: str) -> Callable[[Collected], str]:  # noqa: A002
    """The function that makes the text of a single-file format."""
    from kernbench.export import csv_json, html_page, markdown

    makers = {"md": markdown.make, "csv": csv_json.make_csv, "json": csv_json.make_json, "html": html_page.make}
    if format not in makers:
        raise ExportError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    return makers[format]


def _refuse_folder(target: Path) -> None:
    if target.is_dir():
        raise ExportError(f"{target} is a folder; give the name of a file")
