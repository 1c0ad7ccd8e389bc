"""What counts in a task folder's files: which of them belong together, and which part of each is code.

`reached(folder, ["reference.py"])` follows imports, includes and quoted file names from file to file. It reads the text
and runs nothing, so a file counts as used if the text mentions it.

`code_of` leaves out comments and formatting. Python is reduced to its syntax tree; C, C++ and CUDA to their tokens,
with literals untouched. Files that cannot be parsed and large files count byte for byte. Hashes stored on disk depend
on the result, so it must be the same under every Python from 3.10 on. `ast.dump` is not, so this module serializes the
tree itself.
"""

from __future__ import annotations

import ast
import os
import re
import stat
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from harness.shared.regular_file import NotRegular, read_bytes

NAMED_BASELINES = ("eager", "compile")
PARSED = ("task.toml", "cases.json")
"""Read by kernbench: only the task that they describe counts, not their text."""
SOLUTION = "solution.py"
ADAPTER, ITS_SOLUTION = "bench/adapter.py", "solution/"
"""A suite's adapter, and the folder in which it has the solution."""
SKIPPED = frozenset({"__pycache__", "exports", "ITERATIONS.md"})
STATE_MARK = "runs.jsonl"
"""Marks a folder of stored runs, which contains copies of old sources."""
MOST_FILES = 5000
LARGEST_FILE = 1 << 20
"""A larger file is neither searched nor part of a source."""
_QUOTED = re.compile(r"""(?<=["'/<])[^"'/<>\n]+(?=["'>])""")
"""A quoted file name, or the end of a quoted path."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import\b[ \t]*(?P<names>\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)
_NAME = re.compile(r"[\w.]+")
C_LIKE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl")
CODE = (".py", *C_LIKE)
LARGEST_PARSED = 200 * 1024
"""A larger file is a table: parsing it would block the screen for a quarter of a second or more."""
_IGNORED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Node fields that follow from the node's position, or that only a type checker reads."""
_C_TOKENS = re.compile(
    rb"""
      (?P<literal>
          ^[ \t]*\#[ \t]*include[ \t]*<[^>\n]*>                    # may contain what looks like a comment
        | R"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\(.*?\)(?P=fence)"    # a raw string
        | "(?:\\(?:[ \t]*\r?\n|.)|[^"\\\n])*"                       # may continue after a backslash and a newline
        | \b\.?[0-9](?:'?[\w.])*                                 # a number; its quotes do not open a literal: 1'000
        | '(?:\\(?:[ \t]*\r?\n|.)|[^'\\\n])+'
      )
    | (?P<comment> //(?:\\[ \t\r]*\n|[^\n])* | /\*.*?\*/ )
    | (?P<space> [ \t\r\v\f]+ )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def task_files(folder: Path, baseline: str) -> list[str]:
    """The files that define the task, other than the parsed ones: the reference, a baseline file, and files they use.
    Never includes the solution, even if one of them mentions it."""
    return side_files(folder, ["reference.py", *([] if baseline in NAMED_BASELINES else [baseline])])


def side_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Files of sides other than the solution, and what they use."""
    of_solution = (SOLUTION, ITS_SOLUTION) if is_file(folder / ADAPTER) else (SOLUTION,)
    return [name for name in reached(folder, names, never=of_solution) if name not in PARSED]


def reached(folder: Path, names: Iterable[str], *, deep: bool = True, never: tuple[str, ...] = ()) -> list[str]:
    """Those of `names` that exist, and every file they use directly or indirectly, in the order found. A used file
    whose path begins with one of `never` is left out.

    Without `deep`, only files in the same folder count: a baseline may be anywhere, even in a home directory.
    """
    by_name: dict[str, list[str]] = {}
    for path in listing(folder, deep):
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    found = [name for name in dict.fromkeys(names) if is_file(folder / name)]
    for current in found:
        text = text_of(folder / current)
        used = [path for name in _QUOTED.findall(text) for path in by_name.get(name, ())]
        if current.endswith(".py"):
            places = (path for path in _imported(current, text) if deep or "/" not in path)
            used += [path for path in places if is_file(folder / path)]
        found += [path for path in dict.fromkeys(used) if path not in found and not path.startswith(never)]
    return found


def text_of(path: Path) -> str:
    """The text of a file that may be code; empty if it is data or cannot be read."""
    try:
        return read_bytes(path, LARGEST_FILE).decode("utf-8", "replace")
    except (OSError, NotRegular):
        return ""


def is_file(path: Path) -> bool:
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


def for_a_gpu(folder: Path) -> list[str]:
    """The CUDA files that harness.cuda compiles where there is a GPU: none of a source that does not import it."""
    uses_it = any("harness" in imported(text) and "cuda" in text for text in map(text_of, folder.glob("*.py")))
    return sorted(path.name for path in folder.glob("*.cu")) if uses_it else []


def imported(text: str) -> set[str]:
    """Top-level names of the modules that a Python file's import statements name, but for relative ones."""
    named = (statement["module"] or statement["modules"] for statement in _IMPORT.finditer(text))
    first = (_NAME.match(part.strip()) for names in named for part in names.partition(";")[0].split(","))
    return {name[0].partition(".")[0] for name in first if name is not None} - {""}


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


def code_of(name: str, data: bytes) -> bytes:
    """The part of a file that counts as code; equal for two files that differ only in comments and formatting."""
    if len(data) > LARGEST_PARSED:
        return data
    if name.endswith(".py"):
        try:
            return "".join(_tree(syntax_tree(data))).encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
            return data
    return _of_c(data) if name.endswith(C_LIKE) else data


def syntax_tree(code: str | bytes) -> ast.Module:
    """Without the parser's warnings, which would be printed over the screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def _tree(node: ast.AST) -> Iterator[str]:
    """The tree as text. Skips empty fields: newer Pythons have more of them."""
    yield f"({type(node).__name__}"
    for name in sorted(set(node._fields) - _IGNORED):
        value = getattr(node, name, None)
        if value is None and not isinstance(node, ast.Constant):
            continue
        if isinstance(value, list):
            items = [item for item in value if not (isinstance(node, ast.JoinedStr) and _is_empty_text(item))]
            if items:
                yield f" {name}:"
                for item in items:
                    yield from _tree(item) if isinstance(item, ast.AST) else (_constant(item),)
        elif isinstance(value, ast.AST):
            yield f" {name}:"
            yield from _tree(value)
        else:
            yield f" {name}={_constant(value)}"
    yield ")"


def _is_empty_text(item: Any) -> bool:
    """An empty piece of an f-string, which some Pythons insert between two fields."""
    return isinstance(item, ast.Constant) and item.value == "" and isinstance(item.value, str)


def _constant(value: Any) -> str:
    """ASCII only, because `repr` depends on Python's Unicode tables; ints in hex, because str() limits their digits."""
    text = hex(value) if type(value) is int else ascii(value)
    return f"{type(value).__name__} {text}"


def _of_c(data: bytes) -> bytes:
    lines: list[bytes] = []
    for line in map(bytes.strip, _C_TOKENS.sub(_kept, data).split(b"\n")):
        if line or (lines and lines[-1].endswith(b"\\")):  # an empty line ends a continuation
            lines.append(line)
    return b"\n".join(lines)


def _kept(token: re.Match[bytes]) -> bytes:
    """A literal with its newlines replaced, so that nothing in it counts as formatting."""
    kept = token["literal"] or b" "
    if token["comment"] and _ends_in_backslash(token.string, token.start()):
        kept = token["comment"]  # without it the line would continue on the next
    return kept.replace(b"\n", b"\0")


def _ends_in_backslash(data: bytes, end: int) -> bool:
    return data[data.rfind(b"\n", 0, end) + 1 : end].rstrip().endswith(b"\\")
