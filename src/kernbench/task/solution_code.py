"""Which code belongs to the solution alone: what it imports, includes or names, file by file, and the task's files do
not. Read in a snapshot; looked up in the folder, where a part of it may lie behind a link."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kernbench.task import snapshot
from kernbench.task.code_equality import C_LIKE

CODE = (".py", *C_LIKE)
IMPORT = re.compile(r"^\s*(?:from|import)\b([^\n#]*)", re.MULTILINE)
WORD = re.compile(r"\w+")


def lies_elsewhere(folder: Path, path: Path) -> bool:
    """Behind a linked folder: others may share what is there."""
    return any((folder / parent).is_symlink() for parent in path.parents if parent.name)


def only_of_solution(folder: Path, kept: Path, task_files: Iterable[str]) -> list[Path]:
    """Code files that are reached from solution.py and from none of the task's own files; no links."""
    texts = {path: (kept / path).read_text("utf-8", "replace") for path in snapshot.source_files(kept)}
    used, needed = _reached(texts, ["solution.py"]), _reached(texts, task_files)
    own = sorted(path for path in used - needed if path.suffix in CODE and path.name != "solution.py")
    return [path for path in own if not (folder / path).is_symlink() and not lies_elsewhere(folder, path)]


def _reached(texts: dict[Path, str], names: Iterable[str]) -> set[Path]:
    found = [Path(name) for name in names if Path(name) in texts]
    for current in found:
        imported, named = _mentioned(texts[current])
        used = (path for path in texts if path.name in named or (path.suffix == ".py" and _module(path) in imported))
        found += [path for path in used if path not in found]
    return set(found)


def _module(path: Path) -> str:
    """Its own name, or its folder's."""
    return path.parts[0].removesuffix(".py")


def _mentioned(text: str) -> tuple[set[str], set[str]]:
    """Words of import lines, and names as a program gives them."""
    return {word for line in IMPORT.findall(text) for word in WORD.findall(line)}, set(snapshot.QUOTED.findall(text))
