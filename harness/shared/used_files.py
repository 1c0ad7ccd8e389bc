"""Which files of a task's folder belong together: a file, and every other that it imports, loads or names.

`reached(folder, ["reference.py"])` follows imports, includes and quoted file names, from file to file. Text is read,
nothing is run, so a file counts as used when the text speaks of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

NAMED_BASELINES = ("eager", "compile")
PARSED = ("task.toml", "cases.json")
"""Read by kernbench itself: what counts in them is the task that they describe, not their text."""
SKIPPED = frozenset({"__pycache__", "exports", "ITERATIONS.md"})
STATE_MARK = "runs.jsonl"
"""A folder that holds it keeps runs, with copies of old sources."""
MOST_FILES = 5000
_QUOTED = re.compile(r"""(?<=["'/<])[^"'/<>\n]+(?=["'>])""")
"""A name as a program gives it, or the end of a path."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import\b[ \t]*(?P<names>\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)
_NAME = re.compile(r"[\w.]+")


def task_files(folder: Path, baseline: str) -> list[str]:
    """The files that make the task and not the solution, beyond what is parsed: the reference, a baseline file, and
    what these use."""
    own = [] if baseline in NAMED_BASELINES else [baseline]
    return [name for name in reached(folder, ["reference.py", *own]) if name not in PARSED]


def reached(folder: Path, names: Iterable[str], *, deep: bool = True) -> list[str]:
    """These files, as far as they exist, and all that they use directly or through others; in the order found.

    Without `deep` only files next to each other count: a baseline may be anywhere, even in somebody's home.
    """
    there = listing(folder, deep)
    by_name: dict[str, list[str]] = {}
    for path in there:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    found = [name for name in dict.fromkeys(names) if name in there]
    for current in found:
        try:
            text = (folder / current).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        used = [path for name in _QUOTED.findall(text) for path in by_name.get(name, ())]
        used += [path for path in _imported(current, text) if path in there] if current.endswith(".py") else []
        found += [path for path in dict.fromkeys(used) if path not in found]
    return found


def listing(folder: Path, deep: bool = True) -> set[str]:
    """Every file of the folder by its relative path, without hidden ones, exports and kept runs."""
    found: set[str] = set()
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        about = os.stat(place)
        if (about.st_dev, about.st_ino) in seen or (place != str(folder) and STATE_MARK in files):
            folders.clear()  # a link back, or a state folder
            continue
        seen.add((about.st_dev, about.st_ino))
        folders[:] = sorted(name for name in folders if _counts(name))
        here = os.path.relpath(place, folder)
        for name in files:
            if _counts(name):
                found.add(name if here == "." else f"{here}/{name}")
        if not deep or len(found) > MOST_FILES:
            break
    return found


def _counts(name: str) -> bool:
    return not name.startswith(".") and name not in SKIPPED


def _imported(current: str, text: str) -> Iterator[str]:
    """Paths that the import statements of a module may mean."""
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
    """`a.b` below a folder: a.py, a/__init__.py, a/b.py, a/b/__init__.py."""
    path = "" if base in ("", ".") else f"{base}/"
    for part in module.split("."):
        path += part
        yield f"{path}.py"
        yield f"{path}/__init__.py"
        path += "/"
