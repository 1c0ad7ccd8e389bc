"""Recognizes problems of other suites, in files and folders, without running anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from kernbench.suites.formats import definitions, gpu_mode, kda, kernelbench, plain_file, robust_kbench
from kernbench.suites.formats.foreign_problem import Format, Problem

SEARCHED: tuple[Format, ...] = (kernelbench, definitions, gpu_mode, robust_kbench, kda)
FORMATS: tuple[Format, ...] = (*SEARCHED, plain_file)
"""The last one's files look like many others, so they are not looked for in folders."""


def detect(path: Path, formats: tuple[Format, ...] = FORMATS) -> Problem | None:
    """The problem that a file or a folder defines; None if it is in no format that is known."""
    if path.is_dir():
        places = (path / name for form in formats for name in form.FOLDER.split())
        return next((found for place in places if place.is_file() and (found := detect(place))), None)
    asked = (form.detect(path) for form in formats if any(map(path.match, form.FILES.split())))
    return next((found for found in asked if found is not None), None)


def problems(source: Path) -> list[Problem]:
    """The problem in a file, or all problems below a folder, no two with the same name."""
    if not source.is_dir():
        found = detect(source)
        return [found] if found is not None else []
    globs = {glob for form in SEARCHED for glob in form.FILES.split()}
    paths = {path for glob in globs for path in source.rglob(glob) if not _is_hidden(path, source)}
    every = (found for path in sorted(paths, key=_by_number) if (found := detect(path, SEARCHED)) is not None)
    return _named_apart(list({problem.path: problem for problem in every}.values()))  # tasks have links to them


def _named_apart(every: list[Problem]) -> list[Problem]:
    """Problems with the same name get the folders above it in front, as many as it takes."""
    names = [item.name for item in every]
    for depth in range(len(max((item.path.parts for item in every), key=len, default=()))):
        often = Counter(names)
        if len(often) == len(names):
            break
        above = [item.path.parts[-2 - depth] if len(item.path.parts) > depth + 2 else "" for item in every]
        names = [f"{front}_{name}" if often[name] > 1 else name for front, name in zip(above, names, strict=True)]
    return [replace(item, name=name) for item, name in zip(every, names, strict=True)]


def _is_hidden(path: Path, source: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(source).parts)


def _by_number(path: Path) -> tuple[str, int, str]:
    number = path.name.partition("_")[0]
    return str(path.parent), int(number) if number.isdecimal() else 0, path.name
