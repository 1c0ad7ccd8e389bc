"""Which code belongs to the solution alone: what it imports, includes or names, and the task's own files do not.

Read in a snapshot; looked up in the folder, where a part of it may be behind a link.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.shared.code_equality import CODE
from harness.shared.used_files import reached


def is_behind_link(folder: Path, path: Path) -> bool:
    """In a linked folder: others may share what is there."""
    return any((folder / parent).is_symlink() for parent in path.parents if parent.name)


def only_of_solution(folder: Path, kept: Path, task_files: Iterable[str]) -> list[Path]:
    """Code files that are reached from solution.py and from none of the task's own files; no links."""
    used, needed = reached(kept, ["solution.py"]), reached(kept, task_files)
    own = (Path(name) for name in sorted(set(used) - set(needed) - {"solution.py"}) if name.endswith(CODE))
    return [path for path in own if not (folder / path).is_symlink() and not is_behind_link(folder, path)]
