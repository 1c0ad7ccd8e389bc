"""What a run is compared with: the reference as it is (eager), compiled, the best source so far, a file, or the
solution of a git revision.

The task's own baseline is part of the task's hash. Any other file has a hash in its name, taken from the snapshot that
is timed (`of`): when its text changes, a new series begins. The name of a revision has git's hash of the folder there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.task import Task
from harness.shared.used_files import NAMED_BASELINES, reached

LARGEST_PART = 1 << 28
"""Bytes of a file that a baseline loads, such as weights."""


class BaselineError(UserError):
    """The requested baseline cannot be used; one sentence."""


@dataclass(frozen=True)
class Baseline:
    name: str
    """As logs and series name it; a file other than the task's own carries its hash."""
    file: Path | None = None
    """An absolute path, or a path relative to the task's folder."""
    tree: str = ""
    """Of a git revision: the hash of the task's folder there, which `file` is in."""
    given: str = ""
    """What `--baseline` takes to get the same one again; empty if that is the file or the name."""
    notes: tuple[str, ...] = ()
    """What was different about the task at that revision, as sentences."""

    @classmethod
    def parse(cls, text: str, task: Task) -> Baseline:
        if text in (*NAMED_BASELINES, "best"):
            return cls(text)
        folder = Path(task.folder).resolve()
        try:
            path = next(place for place in _places(text, folder) if place.is_file())
        except (StopIteration, OSError, RuntimeError, ValueError):
            raise BaselineError(
                f"unknown baseline {text!r}: expected eager, compile, best, a file or git:REV"
            ) from None
        if not path.is_relative_to(folder):
            return cls(path.name, path, given=_from_here(path, folder)).of(folder)
        path = path.relative_to(folder)
        return cls(task.baseline) if str(path) == task.baseline else cls(path.name, path).of(folder)

    def of(self, source: Path) -> Baseline:
        """The same baseline in a snapshot of the task's folder, with the hash of the file as it is now."""
        if self.file is None or self.tree:
            return self
        if not (digest := self.digest(source, None)):
            raise BaselineError(f"cannot read the baseline {self.file}; choose another")
        return Baseline(f"{self.file.name}@{digest[:8]}", self.file, given=self.given)

    def for_worker(self, best: str | None) -> str:
        """The baseline for the request: a name, a file of the snapshot, or an absolute path."""
        if self.name == "best" and best is None:
            raise BaselineError("no best to compare with yet; run once with another baseline")
        return str(self.file) if self.file else self.name

    @property
    def option(self) -> str:
        """What `--baseline` takes to choose it."""
        return self.given or str(self.file or self.name)

    def digest(self, source: Path, best: str | None) -> str:
        """Hash of what is timed as the baseline: a file, the reference behind eager and compile, or the best source;
        git's of a revision."""
        if self.name == "best" or self.tree:
            return self.tree or best or ""
        own = source / (self.file or ("reference.py" if self.name in NAMED_BASELINES else self.name))
        if self.name in NAMED_BASELINES:
            names = [own.name]
        else:
            names = reached(own.parent, [own.name], deep=own.is_relative_to(source)) or [own.name]
        try:
            parts = (read_bytes(own.parent / name, LARGEST_PART) for name in names)
            return hashlib.sha256(b"".join(parts)).hexdigest()
        except (OSError, NotRegular):
            return ""


def _from_here(path: Path, folder: Path) -> str:
    """Entries are shared: a file below the current folder is named from there, unless that names another one."""
    here = Path.cwd()
    short = str(path.relative_to(here)) if path.is_relative_to(here) else ""
    found = next((place for place in _places(short, folder) if place.is_file()), None)
    return short if found == path else str(path)


def _places(text: str, folder: Path) -> tuple[Path, Path]:
    """The task's folder before the shell's."""
    return (folder / text).resolve(), Path(text).expanduser().resolve()
