"""Which code belongs to the solution alone: what it imports, includes or names, file by file, and the task's files do
not. Read in a snapshot; looked up in the folder, where a part of it may lie behind a link."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kernbench import snapshot
from kernbench.meaning import C_LIKE

CODE = (".py", *C_LIKE)


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
        found += [path for path in texts if path not in found and _is_used(path, texts[current])]
    return set(found)


def _is_used(path: Path, text: str) -> bool:
    """Imported, by its own name or its folder's, or named in quotes."""
    module = re.escape(path.parts[0].removesuffix(".py"))
    if path.suffix == ".py" and re.search(rf"^\s*(?:from|import)\b[^\n#]*\b{module}\b", text, re.MULTILINE):
        return True
    return re.search(rf"""["'/<]{re.escape(path.name)}["'>]""", text) is not None
