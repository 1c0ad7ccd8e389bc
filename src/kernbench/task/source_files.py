"""Two rules about the files in a task's folder: which of them are the source, and which start a run when they change.

The source is every file up to 1 MB, except notes, logs, exports, object files and editor backups (the lists below) and
what `ignore` in task.toml lists. A run starts when code, a compiled image, task.toml or cases.json changes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from harness.shared.task import Task
from harness.shared.used_files import CODE, LARGEST_FILE, PARSED, SOLUTION, reached

SKIPPED = frozenset({"ITERATIONS.md", "__pycache__", "exports"})
"""Files and folders that are always skipped, like hidden ones."""
NOT_SOURCE_NAMES = frozenset(
    "README LICENSE NOTES TODO Makefile tags TAGS 4913 compile_commands.json perf.data".split()  # 4913: vim's
)
NOT_SOURCE_SUFFIXES = frozenset(
    ".md .rst .html .pdf .png .svg .log .patch .diff .orig .rej .bak .swp .swo .tmp "
    ".o .a .d .out .ncu-rep .nsys-rep .sqlite".split()
)
IMAGES = (".so", ".cubin", ".ptx")
"""What a compiler makes, perhaps in a run."""
CODE_SUFFIXES = (*CODE, ".cl", ".inc", ".metal", *IMAGES)
MOST_LINKED = 1000
"""A linked folder with more files is a store of data and not followed."""
VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""A dangling link, or a temporary file that an editor has removed again."""

Stamps = dict[str, tuple[int, int, int]]
"""Modification time, size and inode by file."""
Identity = tuple[int, int]
"""Device and inode: the same for every spelling of a path."""


def is_skipped(name: str) -> bool:
    """Whether a file or folder is left out by its name alone."""
    return name.startswith(".") or name in SKIPPED or name.endswith("~")


def is_source(name: str) -> bool:
    """Whether a file's name makes it part of the source."""
    is_listed = name in NOT_SOURCE_NAMES or os.path.splitext(name)[1] in NOT_SOURCE_SUFFIXES
    return not (is_listed or is_skipped(name) or name.startswith("#"))


def starts_run(path: str) -> bool:
    """Whether a change of this source file starts a run. Any other source file is data."""
    return path.endswith(CODE_SUFFIXES) or path in PARSED


def source_files(folder: Path, state: Path | None = None, ignore: Sequence[str] = ()) -> list[Path]:
    """The source files, as paths relative to the folder: those of each folder before its subfolders.

    A file whose size cannot be read is included, so that reading it reports why.
    """
    sizes = _walked(folder, state, ignore).items()
    return [path for path, about in sizes if about is None or about.st_size <= LARGEST_FILE]


def stamps(folder: Path, state: Path | None, ignore: Sequence[str] = ()) -> Stamps:
    """Stamps of the source files; every save changes them, even one of the same text."""
    return {
        path.as_posix(): (about.st_mtime_ns, about.st_size, about.st_ino)
        for path, about in _walked(folder, state, ignore).items()
        if about is not None and about.st_size <= LARGEST_FILE
    }


def too_large(task: Task, state: Path) -> list[str]:
    """Sentences about the files over 1 MB that the task's code loads or names."""
    folder = Path(task.folder)
    files = _walked(folder, state, task.ignore).items()
    large = {path.as_posix() for path, about in files if about is not None and about.st_size > LARGEST_FILE}
    used = [name for name in reached(folder, [SOLUTION, *task.files]) if name in large] if large else []
    return [f"{name} is over 1 MB, so it is not part of the source: load it by absolute path" for name in used]


def identity(folder: Path) -> Identity | None:
    """None for a folder that cannot be read."""
    try:
        about = folder.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _walked(folder: Path, state: Path | None, ignore: Sequence[str]) -> dict[Path, os.stat_result | None]:
    """Files of any size that the rule admits; None for one that cannot be read."""
    found: dict[Path, os.stat_result | None] = {}
    real = folder.resolve()
    never = {identity(place) for place in (state, real, *real.parents) if place is not None}
    for path in _Walk(folder, ignore).files(Path(), never):
        try:
            about = (folder / path).stat()
        except OSError as problem:
            if problem.errno not in VANISHED:
                found[path] = None
        else:
            if stat.S_ISREG(about.st_mode):
                found[path] = about
    return found


@dataclass(frozen=True)
class _Walk:
    root: Path
    ignore: Sequence[str]

    def files(self, place: Path, never: set[Identity | None], most: int | None = None) -> Iterator[Path]:
        """Yields everything but folders, each folder's files before its subfolders.

        `never` holds the state folder and the folders above, to which a link may lead back. Behind a link, `most` is
        set: a folder with that many entries is left out, and further links are not followed, because folders that link
        to each other would be found in every order.
        """
        try:
            with os.scandir(self.root / place) as listing:
                listed = list(islice(listing, most))
        except OSError:  # removed, or not readable
            return
        if len(listed) == most:
            return
        entries = sorted((entry.name, _is_folder(entry)) for entry in listed if not is_skipped(entry.name))
        admitted = [(place / name, is_folder) for name, is_folder in entries if is_folder or is_source(name)]
        admitted = [(path, is_folder) for path, is_folder in admitted if not self._is_ignored(path)]
        yield from (path for path, is_folder in admitted if not is_folder)
        for below in (path for path, is_folder in admitted if is_folder):
            here = identity(self.root / below)
            if here in never:
                continue
            if not (self.root / below).is_symlink():
                yield from self.files(below, never | {here}, most)
            elif most is None:
                yield from self._linked(below, never | {here})

    def _linked(self, place: Path, never: set[Identity | None]) -> list[Path]:
        found = list(islice(self.files(place, never, MOST_LINKED + 1), MOST_LINKED + 1))
        return found if len(found) <= MOST_LINKED else []

    def _is_ignored(self, path: Path) -> bool:
        """A pattern matches the name of a file or folder, or its path from the task's folder."""
        return any(fnmatchcase(text, pattern) for pattern in self.ignore for text in (path.name, path.as_posix()))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed
        return False
