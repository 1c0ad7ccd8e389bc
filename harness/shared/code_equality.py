"""What makes two files, or two tasks, the same: code without comments and formatting, and the hash of a task.

Python is reduced to its syntax tree; C, C++ and CUDA to their tokens, with literals untouched. Files that cannot be
parsed and large files count byte for byte. Hashes stored on disk depend on the result, so it must be the same under
every Python from 3.10 on. `ast.dump` is not, so this module serializes the tree itself.

Two runs with the same task hash were checked and timed by the same rules. The hash covers what decides correctness and
speed: the parsed task and cases, and the code of the reference, of a baseline file and of every file in the folder that
they use. Names, labels, comments and formatting are left out, and so is every field at its default, so that a field
added later changes no hash.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.shared.task import Task, Tolerance
from harness.shared.used_files import NAMED_BASELINES

C_LIKE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl")
CODE = (".py", *C_LIKE)
LARGEST = 200 * 1024
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

DIGITS = 16
DEFAULT_TOLERANCE = {
    "float64": Tolerance(1e-9, 1e-9),
    "float32": Tolerance(1e-5, 1e-5),
    "float16": Tolerance(1e-2, 1e-2),
    "bfloat16": Tolerance(5e-2, 5e-2),
}
_DEFAULTS: dict[str, Any] = {"device": "cuda", "threads": 1, "mutates": (), "layout": "reference"}
"""Defaults of the fields that Task requires."""
_NOT_RULES = frozenset("name folder summary ignore hash old_hash files cases tolerance".split())
_NOT_CASE_RULES = frozenset("label models known weight".split())


def code_of(name: str, data: bytes) -> bytes:
    """The part of a file that counts as code; equal for two files that differ only in comments and formatting."""
    if len(data) > LARGEST:
        return data
    if name.endswith(".py"):
        try:
            return "".join(_tree(ast.parse(data))).encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
            return data
    return _of_c(data) if name.endswith(C_LIKE) else data


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


def task_hash(task: Task) -> str:
    """The hash of a loaded task and the current contents of its `files`."""
    digest = hashlib.sha256(json.dumps(_rules(task), sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(task.files):
        code = _code(Path(task.folder) / name)
        digest.update(f"\0{name}\0{len(code)}\0".encode() + code)
    return digest.hexdigest()[:DIGITS]


_digests: dict[Path, tuple[tuple[int, int, int], bytes]] = {}


def _code(path: Path) -> bytes:
    """The part of a file that counts; for large files a digest, recomputed when the file changes."""
    try:
        about = path.stat()
        if about.st_size <= LARGEST:
            return code_of(path.name, path.read_bytes())
        stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
        known = _digests.get(path)
        if known is None or known[0] != stamp:
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
            known = _digests[path] = (stamp, digest.digest())
        return known[1]
    except OSError:
        return b""


def _rules(task: Task) -> dict[str, Any]:
    rules = _set_fields(task, _NOT_RULES)
    rules["tolerance"] = {
        dtype: [bounds.atol, bounds.rtol]
        for dtype, bounds in task.tolerance.items()
        if bounds != DEFAULT_TOLERANCE.get(dtype)
    }
    rules["cases"] = sorted(
        (_set_fields(case, _NOT_CASE_RULES) for case in task.cases), key=lambda case: str(case["id"])
    )
    return rules


def _set_fields(record: Any, left_out: frozenset[str]) -> dict[str, Any]:
    """The fields of a record that differ from their default."""
    fields: dict[str, Any] = {}
    for about in dataclasses.fields(record):
        value = getattr(record, about.name)
        default = _DEFAULTS.get(about.name, about.default)
        if about.default_factory is not dataclasses.MISSING:
            default = about.default_factory()
        if about.name not in left_out and value != default:
            fields[about.name] = value
    return fields


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def old_task_hash(folder: Path, baseline: str) -> str:
    """The hash that kernbench computed before 0.2, over bytes. Runs with this hash belong to the current task if the
    current files still produce it."""
    digest = hashlib.sha256()
    names = ["task.toml", "cases.json", "reference.py"]
    for name in names if baseline in NAMED_BASELINES else [*names, *_old_files_behind(folder, baseline)]:
        content = _content(folder / name)
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:DIGITS]


_OLD_QUOTED = re.compile(r"""["']([\w+.-]+\.[a-z]+)["']""")
_OLD_IMPORTED = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.M)


def _old_files_behind(folder: Path, name: str) -> list[str]:
    found = [name]
    for current in found:
        text = _content(folder / current).decode("utf-8", "replace")
        named = [*_OLD_QUOTED.findall(text), *(f"{module}.py" for module in _OLD_IMPORTED.findall(text))]
        found += [other for other in dict.fromkeys(named) if other not in found and (folder / other).is_file()]
    return found
