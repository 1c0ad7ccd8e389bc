"""Code without comments and layout: two files that differ in nothing else mean the same.

Python is reduced to its syntax tree, C, C++ and CUDA to their tokens with literals untouched. Anything that cannot be
parsed, and any large file, counts byte for byte. The result decides hashes that are kept on disk, so it is the same
under every Python from 3.10 on; `ast.dump` is not, which is why the tree is written out here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

C_LIKE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl")
CODE = (".py", *C_LIKE)
LARGEST = 200 * 1024
"""A larger file is a table: parsing it would hold up the screen for a quarter of a second and more."""
_IGNORED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields of a node that follow from its place, or that only a type checker reads."""
_C_TOKENS = re.compile(
    rb"""
      (?P<literal>
          ^[ \t]*\#[ \t]*include[ \t]*<[^>\n]*>                    # may hold what looks like a comment
        | R"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\(.*?\)(?P=fence)"    # a raw string
        | "(?:\\(?:[ \t]*\r?\n|.)|[^"\\\n])*"                       # may go on after a backslash and the line's end
        | \b\.?[0-9](?:'?[\w.])*                                 # a number, whose quotes open no literal: 1'000
        | '(?:\\(?:[ \t]*\r?\n|.)|[^'\\\n])+'
      )
    | (?P<comment> //(?:\\[ \t\r]*\n|[^\n])* | /\*.*?\*/ )
    | (?P<space> [ \t\r\v\f]+ )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def code_of(name: str, data: bytes) -> bytes:
    """What of a file counts as code; equal for two files that differ only in comments and layout."""
    if len(data) > LARGEST:
        return data
    if name.endswith(".py"):
        try:
            return "".join(_tree(ast.parse(data))).encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
            return data
    return _of_c(data) if name.endswith(C_LIKE) else data


def _tree(node: ast.AST) -> Iterator[str]:
    """The tree as text. Empty fields are left out: newer Pythons have more of them."""
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
    """An empty piece of an f-string, which some Pythons put between two fields."""
    return isinstance(item, ast.Constant) and item.value == "" and isinstance(item.value, str)


def _constant(value: Any) -> str:
    """ASCII alone, since which characters `repr` prints depends on Python's Unicode tables; huge ints in hex."""
    text = hex(value) if type(value) is int else ascii(value)
    return f"{type(value).__name__} {text}"


def _of_c(data: bytes) -> bytes:
    lines: list[bytes] = []
    for line in map(bytes.strip, _C_TOKENS.sub(_kept, data).split(b"\n")):
        if line or (lines and lines[-1].endswith(b"\\")):  # an empty line ends what was to be continued
            lines.append(line)
    return b"\n".join(lines)


def _kept(token: re.Match[bytes]) -> bytes:
    """A literal with no line ends in it, so that nothing in it is taken for layout."""
    kept = token["literal"] or b" "
    if token["comment"] and _ends_in_backslash(token.string, token.start()):
        kept = token["comment"]  # without it the line would go on with the next
    return kept.replace(b"\n", b"\0")


def _ends_in_backslash(data: bytes, end: int) -> bool:
    return data[data.rfind(b"\n", 0, end) + 1 : end].rstrip().endswith(b"\\")
