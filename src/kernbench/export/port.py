"""The best solution, back to the file it is for: the difference is shown, and written only into a clean repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench.atomic_write import written_aside
from kernbench.doctor import repository
from kernbench.log import stored_sources, unified_diff
from kernbench.log.runs.journal import Journal
from kernbench.machine.git import Git
from kernbench.task.lookup import repository_root


class PortError(UserError):
    """The solution cannot be written there; one sentence."""


@dataclass(frozen=True)
class Port:
    """One file of a source, and where it is to go."""

    source: Path
    name: str
    """As the diff calls it: `12/solution.py`."""
    target: Path
    others: tuple[str, ...] = ()
    """Files that the source has beside it, and that may be part of its speed: a wrapper, flags, a header."""

    @property
    def new(self) -> bytes:
        return self.source.read_bytes()

    @property
    def old(self) -> bytes | None:
        try:
            return self.target.read_bytes()
        except FileNotFoundError:
            return None

    def diff(self) -> list[str]:
        return list(unified_diff.unified(self.old, self.new, str(self.target), self.name))


def plan(task: Task, journal: Journal, target: Path, reference: str = "best", name: str | None = None) -> Port:
    """Which file of which source goes there: the one asked for, else the only one that fits by name or ending."""
    point = stored_sources.find(task, journal, reference)
    if point.summary is not None and not point.summary.right:
        raise PortError(f"{reference} is not right on every case; port another")
    files = stored_sources.solution_files(point, task)
    if target.is_dir() or not target.parent.is_dir():
        what = "a folder" if target.is_dir() else "in a folder that is not there"
        raise PortError(f"{target} is {what}; name a file")
    fits = [path for path in files if path.as_posix() == name] if name else _fitting(files, target)
    if len(fits) != 1:
        names = ", ".join(path.as_posix() for path in files)
        raise PortError(f"which file goes to {target.name}? `--file` names one of {names}")
    others = tuple(path.as_posix() for path in files if path != fits[0])
    return Port(point.folder / fits[0], f"{point.name}/{fits[0].as_posix()}", target, others)


def obstacle(target: Path) -> str | None:
    """Why nothing should be written there now; None when the repository is clean."""
    root = repository_root(target.absolute().parent)
    if root is None:
        return f"{target} is not in a git repository, so what is there could not be brought back"
    check = repository.cleanliness(Git(root))
    return None if check.ok else f"{root} is not clean ({check.says})"


def write(port: Port) -> None:
    """Replaces the file as a whole, and keeps its mode; a link is followed."""
    try:
        with written_aside(port.target, port.new) as move:
            move()
    except OSError as problem:
        raise PortError(f"{problem.filename} cannot be written: {problem.strerror}") from None


def _fitting(files: list[Path], target: Path) -> list[Path]:
    same_name = [path for path in files if path.name == target.name]
    named_solution = [path for path in files if path.name == f"solution{target.suffix}"]
    same_ending = [path for path in files if path.suffix == target.suffix]
    return same_name or named_solution or same_ending
