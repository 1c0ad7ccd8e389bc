"""A problem of another suite, and what a task of it consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.shared.regular_file import read_text

LARGEST = 16 << 20
"""Bytes of a file whose text a task gets."""


@dataclass(frozen=True)
class Form:
    """How a problem becomes a task."""

    scale: int = 1
    """Its sizes are divided by this."""
    device: str = "cuda"
    copy: bool = False
    """The task gets copies of the problem's files instead of links to them."""
    solution: Path | None = None
    """What to start with, instead of the problem itself: a file, or a folder if `takes_folder`."""


@dataclass(frozen=True)
class Contents:
    """The files of a task."""

    task: str
    """The text of task.toml."""
    reference: str
    """The text of reference.py."""
    solution: Mapping[str, str]
    """Texts by file name: solution.py, and what it loads."""
    links: Mapping[str, Path]
    """The problem's own files, by their name in the task."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Further texts, such as cases.json."""


@dataclass(frozen=True)
class Problem:
    format: str
    path: Path
    """The file that defines it, with links resolved."""
    name: str
    """Of the task's folder."""
    title: str
    contents: Callable[[Form], Contents]
    about: str = ""
    """What `import --list` says about it."""
    refused: str = ""
    """Why it is not supported, in a sentence."""
    edited: str = "solution.py"
    """What to edit in its task."""
    takes_folder: bool = False
    """Whether a solution is a folder, and not a file."""


class Format(Protocol):
    """What a module of this folder has."""

    NAME: str
    """The format of `origin` in task.toml."""
    FILES: str
    """Globs for the names of the files that define problems, with spaces between them."""
    FOLDER: str
    """The files by which a folder opens as a problem, with spaces between them; empty if none does."""
    EXPORT: str
    """The word of `export --format`."""

    def detect(self, path: Path) -> Problem | None:
        """The problem that a file defines."""

    def exported(self, files: dict[str, bytes], origin: dict[str, str]) -> bytes | dict[str, bytes]:
        """A solution in the suite's own form, from its files and the task's `origin`: a file, or a folder's files."""


def read_source(path: Path) -> str:
    """The text of a problem's or a solution's file; raises UserError if it is not a regular file."""
    return read_text(path, LARGEST)
