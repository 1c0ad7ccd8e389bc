"""What of a source file counts: two that differ only in comments and layout are not worth timing again.

Python by its syntax tree; C, C++ and CUDA without comments, with one space for many and without empty lines, literals
as they are. Whatever is not understood counts as it is.
"""

from __future__ import annotations

import ast
import re

C_LIKE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl")
_C_TOKENS = re.compile(
    rb"""
      (?P<literal>
          ^[ \t]*\#[ \t]*include[ \t]*<[^>\n]*>                    # may hold what looks like a comment
        | R"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\(.*?\)(?P=fence)"    # a raw string
        | "(?:\\.|[^"\\\n])*"
        | \b\.?[0-9](?:'?[\w.])*                                 # a number, whose quotes open no literal: 1'000
        | '(?:\\.|[^'\\\n])+'
      )
    | (?P<comment> //(?:\\[ \t\r]*\n|[^\n])* | /\*.*?\*/ )
    | (?P<space> [ \t\r\v\f]+ )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def of(name: str, data: bytes) -> bytes:
    if name.endswith(".py"):
        try:
            return ast.dump(ast.parse(data)).encode()
        except (SyntaxError, ValueError, RecursionError):
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
    return (token["literal"] or b" ").replace(b"\n", b"\0")
