"""What of a source file counts: two that differ only in comments and layout are not worth timing again.

Python by its syntax tree; C, C++ and CUDA without comments, with one space for many, literals as they are. Whatever is
not understood counts as it is.
"""

from __future__ import annotations

import ast
import re

C_LIKE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl")
_C_TOKENS = re.compile(
    rb"""
      (?P<literal>
          R"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\(.*?\)(?P=fence)"    # a raw string
        | "(?:\\.|[^"\\\n])*"
        | (?:\b(?:u8|u|U|L))?(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'   # and no digits in groups, as 1'000
      )
    | (?P<comment> //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )
    | (?P<space> [ \t\r\v\f]+ )
    """,
    re.VERBOSE | re.DOTALL,
)


def of(name: str, data: bytes) -> bytes:
    if name.endswith(".py"):
        try:
            return ast.dump(ast.parse(data)).encode()
        except (SyntaxError, ValueError, RecursionError):
            return data
    if name.endswith(C_LIKE):
        lines = (line.strip() for line in _C_TOKENS.sub(_kept, data).split(b"\n"))
        return b"\n".join(line for line in lines if line)
    return data


def _kept(token: re.Match[bytes]) -> bytes:
    return token["literal"] or b" "
