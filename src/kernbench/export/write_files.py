"""Writes files whole or not at all, and never over existing ones unless asked to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.shared.task import Task
from harness.shared.used_files import SOLUTION
from kernbench.atomic_write import written_aside
from kernbench.export.formats import ExportError
from kernbench.log import stored_sources
from kernbench.log.entries.pulled_entries import UNDECODED


def write_all(files: Mapping[Path, str | bytes], force: bool, task: Task, state: Path) -> list[Path]:
    """Writes every file under a temporary name first, so that a full disk leaves none of them; returns their paths.
    Never over the task's own files, its solution or its log."""
    own = {Path(task.folder, name).resolve() for name in ("ITERATIONS.md", SOLUTION, *stored_sources.frozen(task))}
    kept = state.resolve()
    for place in map(Path.resolve, files):
        if place in own or (place.is_relative_to(kept) and not place.is_relative_to(kept / "exports")):
            raise ExportError(f"{place} belongs to the task; export to a file of another name")
    taken = [path for path in files if path.exists()]
    if taken and not force:
        raise ExportError(f"{taken[0]} already exists; use `--force` to overwrite it")
    with contextlib.ExitStack() as stack:
        try:
            moves = [stack.enter_context(_aside(path, content)) for path, content in files.items()]
            for move in moves:
                move()
        except OSError as problem:
            why = f"cannot write {problem.filename}: {problem.strerror}"
            raise ExportError(f"{why}; nothing was exported") from None
    return list(files)


def _aside(path: Path, content: str | bytes) -> contextlib.AbstractContextManager[Callable[[], None]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return written_aside(path, as_bytes(content) if isinstance(content, str) else content)


def as_text(content: bytes) -> str:
    """The opposite of `as_bytes`."""
    return content.decode("utf-8", UNDECODED)


def as_bytes(content: str) -> bytes:
    """UTF-8; bytes of a source that are not UTF-8 stay as they are."""
    return content.encode("utf-8", UNDECODED)
