"""Recognizes problems of other suites, in files and folders, without running anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernbench.suites.formats import gpu_mode, kernelbench
from kernbench.suites.formats.foreign_problem import Problem

FORMATS = (kernelbench, gpu_mode)
"""Each has `detect(path)`, the problem that a file defines or None, and FILES, the names of such files as a glob."""


def detect(path: Path) -> Problem | None:
    """The problem that a file or a folder defines; None if it is in no format that is known."""
    if path.is_dir():
        places = (path / form.FILES for form in FORMATS if "*" not in form.FILES)
        return next((found for place in places if place.is_file() and (found := detect(place))), None)
    asked = (form.detect(path) for form in FORMATS if path.match(form.FILES))
    return next((found for found in asked if found is not None), None)


def problems(source: Path) -> Iterator[Problem]:
    """The problem in a file, or all problems below a folder."""
    if not source.is_dir():
        paths = [source]
    else:
        names = {path for form in FORMATS for path in source.rglob(form.FILES) if not _is_hidden(path, source)}
        paths = sorted(names, key=_by_number)
    for path in paths:
        if (found := detect(path)) is not None:
            yield found


def _is_hidden(path: Path, source: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(source).parts)


def _by_number(path: Path) -> tuple[str, int, str]:
    number = path.name.partition("_")[0]
    return str(path.parent), int(number) if number.isdecimal() else 0, path.name
