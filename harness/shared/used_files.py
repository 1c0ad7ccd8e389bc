"""Which files in a task folder belong together: a file, and every file that it imports, loads or names.

`reached(folder, ["reference.py"])` follows imports, includes and quoted file names from file to file. It reads the text
and runs nothing, so a file counts as used if the text mentions it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

NAMED_BASELINES = ("eager", "compile")
PARSED = ("task.toml", "cases.json")
"""Read by kernbench: only the task that they describe counts, not their text."""
SOLUTION = "solution.py"
SKIPPED = frozenset({"__pycache__", "exports", "ITERATIONS.md"})
STATE_MARK = "runs.jsonl"
"""Marks a folder of stored runs, which contains copies of old sources."""
MOST_FILES = 5000
LARGEST_TEXT = 1 << 20
"""A larger file is data and is not searched."""
_QUOTED = re.compile(r"""(?<=["'/<])[^"'/<>\n]+(?=["'>])""")
"""A quoted file name, or the end of a quoted path."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import\b[ \t]*(?P<names>\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)
_NAME = re.compile(r"[\w.]+")


def task_files(folder: Path, baseline: str) -> list[str]:
    """The files that define the task, other than the parsed ones: the reference, a baseline file, and files they use.
    Never includes the solution, even if one of them mentions it."""
    own = [] if baseline in NAMED_BASELINES else [baseline]
    return [name for name in reached(folder, ["reference.py", *own], never=SOLUTION) if name not in PARSED]


def reached(folder: Path, names: Iterable[str], *, deep: bool = True, never: str = "") -> list[str]:
    """Those of `names` that exist, and every file they use directly or indirectly, in the order found.

    Without `deep`, only files in the same folder count: a baseline may be anywhere, even in a home directory.
    """
    by_name: dict[str, list[str]] = {}
    for path in listing(folder, deep):
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    found = [name for name in dict.fromkeys(names) if _is_file(folder / name)]
    for current in found:
        text = text_of(folder / current)
        used = [path for name in _QUOTED.findall(text) for path in by_name.get(name, ())]
        if current.endswith(".py"):
            places = (path for path in _imported(current, text) if deep or "/" not in path)
            used += [path for path in places if _is_file(folder / path)]
        found += [path for path in dict.fromkeys(used) if path not in found and path != never]
    return found


def text_of(path: Path) -> str:
    """The text of a file that may be code; empty if it is data or cannot be read."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_TEXT:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def listing(folder: Path, deep: bool = True) -> list[str]:
    """Relative paths of all files in the folder, top levels first, without hidden files, exports and stored runs.

    Symlinked folders come after real ones. Each folder is visited once, and parents of this folder never.
    """
    found: list[str] = []
    seen = {_identity(place) for place in folder.resolve().parents}
    places, links = [""], list[str]()
    while (places or links) and len(found) <= MOST_FILES:
        here = places.pop(0) if places else links.pop(0)
        identity = _identity(folder / here)
        if identity is None or identity in seen:
            continue
        seen.add(identity)
        try:
            entries = sorted(os.scandir(folder / here), key=lambda entry: entry.name)
        except OSError:
            continue
        if here and any(entry.name == STATE_MARK for entry in entries):
            continue
        for entry in entries:
            path = f"{here}/{entry.name}" if here else entry.name
            if not _counts(entry.name):
                continue
            try:
                if not entry.is_dir():
                    found += [path] if entry.is_file() else []
                elif deep:
                    (links if entry.is_symlink() else places).append(path)
            except OSError:
                continue
    return found


def _identity(place: Path) -> tuple[int, int] | None:
    try:
        about = place.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _counts(name: str) -> bool:
    return not name.startswith(".") and name not in SKIPPED


def _imported(current: str, text: str) -> Iterator[str]:
    """Paths that the import statements of a module may refer to."""
    for statement in _IMPORT.finditer(text):
        if statement["module"] is None:
            modules = (part.split(" as ")[0].strip() for part in statement["modules"].split(","))
            for module in modules:
                yield from _places("", module)
            continue
        dots = len(statement["module"]) - len(statement["module"].lstrip("."))
        base = str(PurePosixPath(current).parents[min(dots, current.count("/") + 1) - 1]) if dots else ""
        module = statement["module"].lstrip(".")
        yield from _places(base, module)
        for part in statement["names"].strip("()").split(","):
            name = _NAME.match(part.strip())
            if name is not None:
                yield from _places(base, f"{module}.{name[0]}" if module else name[0])


def _places(base: str, module: str) -> Iterator[str]:
    """Candidates for `a.b` in a folder: a.py, a/__init__.py, a/b.py, a/b/__init__.py."""
    path = "" if base in ("", ".") else f"{base}/"
    for part in module.split("."):
        path += part
        yield f"{path}.py"
        yield f"{path}/__init__.py"
        path += "/"
