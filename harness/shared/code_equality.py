"""Code without comments and formatting: two files that differ only in these mean the same.

Python is reduced to its syntax tree; C, C++ and CUDA to their tokens, with literals untouched. Files that cannot be
parsed and large files count byte for byte. Hashes stored on disk depend on the result, so it must be the same under
every Python from 3.10 on. `ast.dump` is not, so this module serializes the tree itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

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
