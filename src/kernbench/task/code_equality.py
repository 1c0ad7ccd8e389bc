"""What of a source file counts: two that differ only in comments and layout are not worth timing again.

Python by its syntax tree; C, C++ and CUDA without comments, with one space for many and without empty lines, literals
as they are. Whatever is not understood counts as it is.
"""

from __future__ import annotations

import ast
import re

C_LIKE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl")
LARGEST = 200 * 1024
"""A larger file is a table: understanding it would hold up the screen for a quarter of a second and more."""
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


def of(name: str, data: bytes) -> bytes:
    if len(data) > LARGEST:
        return data
    if name.endswith(".py"):
        try:
            return ast.dump(ast.parse(data)).encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last where it is nested too deep
            return data
    return _of_c(data) if name.endswith(C_LIKE) else data


def _of_c(data: bytes) -> bytes:
    lines: list[bytes] = []
    for line in map(bytes.strip, _C_TOKENS.sub(_kept, data).split(b"\n")):
        if line or (lines and lines[-1].endswith(b"\\")):  # an empty line ends what was to be continued
            lines.append(line)
    return b"\n".join(lines)


def _kept(token: re.Match[bytes]) -> bytes:
    """A literal with no line ends in it, so that nothing is taken for layout there."""
    kept = token["literal"] or b" "
    if token["comment"] and _ends_in_backslash(token.string, token.start()):
        kept = token["comment"]  # without it the line would go on with the next
    return kept.replace(b"\n", b"\0")


def _ends_in_backslash(data: bytes, end: int) -> bool:
    return data[data.rfind(b"\n", 0, end) + 1 : end].rstrip().endswith(b"\\")
