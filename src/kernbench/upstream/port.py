"""Ports the best solution to the file it is meant for: shows the diff, and writes only into a clean repository."""

from __future__ import annotations

import symtable
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.regular_file import read_bytes
from harness.shared.task import Task
from harness.shared.used_files import LARGEST_FILE
from kernbench.atomic_write import written_aside
from kernbench.doctor import repository
from kernbench.log import stored_sources, unified_diff
from kernbench.log.runs.journal import Journal
from kernbench.machine.git import Git
from kernbench.task import snapshot
from kernbench.task.lookup import repository_root

LARGEST = 1 << 24
"""Of the file to replace."""


class PortError(UserError):
    """The solution cannot be written there; one sentence."""


@dataclass(frozen=True)
class Port:
    """One file of a source, and where it goes."""

    source: Path
    name: str
    """As the diff names it: `12/solution.py`."""
    target: Path
    folder: Path
    """Of the whole source."""
    source_hash: str = ""
    others: tuple[str, ...] = ()
    """Other files of the source, which may be part of its speed: a wrapper, flags, a header."""

    @property
    def new(self) -> bytes:
        return read_bytes(self.source, LARGEST_FILE)

    @property
    def old(self) -> bytes | None:
        try:
            return read_bytes(self.target, LARGEST)
        except FileNotFoundError:
            return None

    def diff(self) -> list[str]:
        return list(unified_diff.unified(self.old, self.new, str(self.target), self.name))


def plan(task: Task, journal: Journal, target: Path, reference: str = "best", name: str | None = None) -> Port:
    """Chooses the file to port: the one named, else the only one that fits by name or suffix."""
    point = stored_sources.find(task, journal, reference)
    if point.summary is not None and not point.summary.right:
        raise PortError(f"{reference} fails some cases; port another")
    files = stored_sources.solution_files(point, task)
    if target.is_dir():
        raise PortError(f"{target} is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise PortError(f"{target}: its folder does not exist")
    fits = [path for path in files if path.as_posix() == name] if name else _fitting(files, target)
    if len(fits) != 1:
        names = ", ".join(path.as_posix() for path in files)
        raise PortError(f"which file goes into {target.name}? choose one with `--file`: {names}")
    others = tuple(path.as_posix() for path in files if path != fits[0])
    digest = point.summary.source if point.summary else snapshot.sha_of(point.folder, point.state, task.ignore)
    return Port(point.folder / fits[0], f"{point.name}/{fits[0].as_posix()}", target, point.folder, digest, others)


def obstacle(port: Port) -> str | None:
    """Why nothing should be written there now, and what to do; None if no name is lost and the repository is clean."""
    target = port.target
    if target.suffix == ".py" and (lost := sorted(_public(port.old) - _public(port.new))):
        return f"{target.name} would lose {fmt.joined(lost)}, which other code may import; use --force to drop them"
    root, anyway = repository_root(target.parent.resolve()), "use --force to write it anyway"
    if root is None:
        return f"{target} is not in a git repository, so git cannot undo the change; {anyway}"
    if not target.resolve().is_relative_to(root.resolve()):
        return f"{target} is a link to {target.resolve()}, which is not in the repository; {anyway}"
    check = repository.cleanliness(Git(root))
    return None if check.ok else f"{root} is not clean ({check.says}); commit first, or use --force"


def _public(code: bytes | None) -> set[str]:
    """What a module defines at its top level without a leading underscore."""
    try:
        symbols = symtable.symtable((code or b"").decode("utf-8-sig", "replace"), "", "exec").get_symbols()
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = {symbol.get_name() for symbol in symbols if symbol.is_assigned() and not symbol.is_imported()}
    return {name for name in names if not name.startswith("_")}


def write(port: Port) -> None:
    """Replaces the whole file and keeps its mode; follows a link."""
    try:
        with written_aside(port.target, port.new) as move:
            move()
    except OSError as problem:
        raise PortError(f"cannot write {problem.filename}: {problem.strerror}") from None


def put_back(port: Port, old: bytes | None) -> str:
    """Undoes `write`. If it cannot, or the file was changed since, returns why, and where the old contents are."""
    why = f"{port.target} was changed since it was written, and stays as it is"
    if port.old == port.new:
        try:
            if old is None:
                port.target.resolve().unlink()  # a link of the user's stays
            else:
                with written_aside(port.target, old) as move:
                    move()
        except OSError as problem:
            why = f"cannot put back {problem.filename}: {problem.strerror}"
        else:
            return ""
    if old is None:
        return why
    with tempfile.NamedTemporaryFile(prefix="kernbench-", suffix=f"-{port.target.name}", delete=False) as kept:
        kept.write(old)
    return f"{why}; its old contents are in {kept.name}"


def _fitting(files: list[Path], target: Path) -> list[Path]:
    same_name = [path for path in files if path.name == target.name]
    named_solution = [path for path in files if path.name == f"solution{target.suffix}"]
    same_ending = [path for path in files if path.suffix == target.suffix]
    return same_name or named_solution or same_ending
