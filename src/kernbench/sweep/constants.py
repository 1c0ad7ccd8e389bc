"""Finds the one place in a solution's files that sets a constant, and puts another value there.

Where NAME is set at file level (a Python or C++ assignment, a `#define`, a template's default), that place counts;
otherwise any place that sets it does: an assignment in a function, a default of a parameter, an argument of a call, a
flag `-DNAME=...`. There has to be exactly one. Python is read by its syntax tree, C++ by its words, also inside the
strings of a Python file.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.used_files import C_LIKE, CODE

_HIDDEN = re.compile(rb"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])+'", re.DOTALL)
"""Comments and literals, which set nothing."""
_TRANSPARENT = re.compile(rb'(?:\bnamespace(?:\s+[\w:]+)?|\bextern\s*"\s*"|\benum\b[\w\s:]*)\s*$')
"""Before a brace that does not leave the file's level."""
_IN_TEMPLATE = re.compile(rb"\btemplate\s*<[^;{}]*$")
_NUMBERED = re.compile(
    rb"\bdefine[ \t]+([A-Za-z_]\w*)[ \t]+[-+\d]|(?<![\w.])([A-Za-z_]\w*)[ \t]*(?::[^=\n]*)?=[ \t]*[-+\d]"
)
"""What may be a constant with a number: `NAME = 4`, `NAME: int = 4`, `#define NAME 4`."""
_CHANGED = re.compile(
    rb"(?<![\w.])(?<!->)([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)=)|(?:\+\+|--|[(,]\s*&)\s*([A-Za-z_]\w*)"
)
"""A variable that C++ changes: `row++`, `--row`, `sum += x`, `add(&sum)`."""
_NUMBER = re.compile(r"[-+]?(?:0[xX][\da-fA-F]+|[\d_]+(?:\.\d*)?(?:[eE][-+]?\d+)?)[uUlLfF]*")
_OPENING, _CLOSING = b"([{", b")]}"


class ConstantError(UserError):
    """A constant is set nowhere, or at several places; one sentence."""


@dataclass(frozen=True)
class Place:
    """The bytes of a file that are a constant's value."""

    file: str
    start: int
    end: int
    line: int
    at_file_level: bool
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def find(name: str, files: Mapping[str, bytes]) -> Place:
    """`files` are the solution's; raises ConstantError."""
    code = {file: data for file, data in files.items() if file.endswith(CODE)}
    places = [place for file, data in sorted(code.items()) for place in _places(name, file, data)]
    counted = [place for place in places if place.at_file_level] or places
    if len(counted) == 1:
        return counted[0]
    if counted:
        where = fmt.joined([str(place) for place in counted])
        raise ConstantError(f"{name} is set at {where}; a sweep needs one place, so give one of them another name")
    word = re.compile(rb"\b%s\b" % re.escape(name.encode()))
    uses = [f"{file}:{_line(data, found.start())}" for file, data in code.items() if (found := word.search(data))]
    seen = f"{uses[0]} only uses it" if uses else f"the solution's files are {', '.join(sorted(code)) or 'missing'}"
    raise ConstantError(f"nothing sets {name} ({seen}); write `{name} = ...` or `#define {name} ...` at file level")


def listed(files: Mapping[str, bytes]) -> dict[str, Place]:
    """The constants that a sweep can set and that are a number now, in the order of their places. A name that is bound
    again or changed anywhere is a variable, such as a loop's or a sum."""
    found: dict[str, Place] = {}
    code = {file: data for file, data in files.items() if file.endswith(CODE)}
    names = {(match[1] or match[2]).decode() for data in code.values() for match in _NUMBERED.finditer(data)}
    for name in names.difference(*(_variables(file, data) for file, data in code.items())):
        with contextlib.suppress(ConstantError):
            place = find(name, files)
            if _NUMBER.fullmatch(place.text):
                found[name] = place
    return dict(sorted(found.items(), key=lambda item: (not item[1].at_file_level, item[1].file, item[1].start)))


def _variables(file: str, data: bytes) -> set[str]:
    if file.endswith(C_LIKE):
        return {(match[1] or match[2]).decode() for match in _CHANGED.finditer(_visible(data))}
    nodes = [node for node, _ in _parsed(data)]
    bound = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    in_texts = (_variables(".cpp", text.encode(errors="replace")) for text in texts)
    return {name for name, times in bound.items() if times > 1}.union(*in_texts)


def replaced(files: Mapping[str, bytes], values: Sequence[tuple[Place, str]]) -> dict[str, bytes]:
    """The files with these values."""
    changed, end_of_free = dict(files), dict[str, int]()
    for place, value in sorted(values, key=lambda item: item[0].start, reverse=True):
        data = changed[place.file]
        if place.end > end_of_free.get(place.file, len(data)):
            raise ConstantError(f"two of the constants have the same value at {place}; give each its own")
        end_of_free[place.file] = place.start
        changed[place.file] = data[: place.start] + value.encode() + data[place.end :]
    return changed


def _places(name: str, file: str, data: bytes) -> Iterator[Place]:
    finder = _in_cpp if file.endswith(C_LIKE) else _in_python
    for start, end, at_file_level in finder(name, data):
        text = " ".join(data[start:end].decode(errors="replace").split())
        yield Place(file, start, end, _line(data, start), at_file_level, text)


def _line(data: bytes, place: int) -> int:
    return data.count(b"\n", 0, place) + 1


# -- Python -----------------------------------------------------------------------------------------------------------


def _in_python(name: str, data: bytes) -> Iterator[tuple[int, int, bool]]:
    if name.encode() not in data:
        return
    starts = [0, *(found.end() for found in re.finditer(rb"\n", data))]

    def span(node: ast.expr) -> tuple[int, int]:
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + column

    for node, at_file_level in _parsed(data):
        for value in _values(name, node):
            yield *span(value), at_file_level and isinstance(node, (ast.Assign, ast.AnnAssign))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _in_string(name, data, *span(node))


@functools.lru_cache(maxsize=16)
def _parsed(data: bytes) -> list[tuple[ast.AST, bool]]:
    """The nodes of a file; none if it cannot be parsed: the run says what is wrong with it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return list(_nodes(ast.parse(data.decode()), True))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _nodes(parent: ast.AST, at_file_level: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, and whether it is outside of functions and classes; no docstrings, no f-strings."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        yield node, at_file_level
        opens = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda))
        yield from _nodes(node, at_file_level and not opens)


def _values(name: str, node: ast.AST) -> Iterator[ast.expr]:
    """The values that a node gives the name."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            else:
                pairs = [(target, node.value)]
            yield from (value for one, value in pairs if isinstance(one, ast.Name) and one.id == name)
    elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        yield from [node.value] if node.target.id == name else []
    elif isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg == name)
    elif isinstance(node, ast.arguments):
        plain = [*node.posonlyargs, *node.args]
        last = plain[len(plain) - len(node.defaults) :]
        named = [*zip(last, node.defaults, strict=True), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        yield from (value for argument, value in named if argument.arg == name and value is not None)


def _in_string(name: str, data: bytes, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """C++ in a string of several lines, or a compiler's flag."""
    text = data[start:end]
    if b"\n" in text:
        quotes = 3 if text.lstrip(b"rRbBuU")[:3] in (b'"""', b"'''") else 1
        begin = len(text) - len(text.lstrip(b"rRbBuU")) + quotes
        for first, last, at_file_level in _in_cpp(name, text[begin:-quotes]):
            yield start + begin + first, start + begin + last, at_file_level
    for found in re.finditer(rb"-D%s=([^\s\"']+)" % re.escape(name.encode()), text):
        yield start + found.start(1), start + found.end(1), False


# -- C++ --------------------------------------------------------------------------------------------------------------


def _in_cpp(name: str, data: bytes) -> Iterator[tuple[int, int, bool]]:
    if name.encode() not in data:
        return
    seen, word = _visible(data), re.escape(name.encode())
    for found in re.finditer(rb"^[ \t]*#[ \t]*define[ \t]+%s[ \t]+([^\n\\]*[^\s\\])" % word, seen, re.MULTILINE):
        yield found.start(1), found.end(1), True
    for found in re.finditer(rb"(?<![\w.])(?<!->)%s[ \t]*=(?!=)\s*" % word, seen):
        if (end := _value_end(seen, found.end(), _IN_TEMPLATE.search(seen, 0, found.start()) is not None)) is not None:
            yield found.end(), end, _at_file_level(seen[: found.start()])


@functools.lru_cache(maxsize=64)
def _visible(data: bytes) -> bytes:
    """Without comments and literals, every letter at its place."""
    return _HIDDEN.sub(_blank, data)


def _blank(found: re.Match[bytes]) -> bytes:
    """As long, with the same lines; a literal keeps its quotes."""
    text = re.sub(rb"[^\n]", b" ", found[0])
    return text if found[0][:1] == b"/" else found[0][:1] + text[1:-1] + found[0][-1:]


def _value_end(text: bytes, start: int, in_template: bool) -> int | None:
    """Where the value ends: at a semicolon, or at a comma or a bracket that does not belong to it."""
    ends = b";,>" if in_template else b";,"
    depth = 0
    for place in range(start, len(text)):
        letter = text[place : place + 1]
        if depth == 0 and (letter in ends or letter in _CLOSING):
            return start + len(text[start:place].rstrip())
        depth += (letter in _OPENING) - (letter in _CLOSING)
    return None


def _at_file_level(before: bytes) -> bool:
    open_braces: list[bool] = []
    for found in re.finditer(rb"[{}]", before):
        if found[0] == b"{":
            open_braces.append(_TRANSPARENT.search(before[max(0, found.start() - 200) : found.start()]) is None)
        elif open_braces:
            open_braces.pop()
    return not any(open_braces)
