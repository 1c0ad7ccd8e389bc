"""A problem's own code under the name that its suite wants of a solution."""

from __future__ import annotations

import io
import tokenize


def renamed(text: str, old: str, new: str) -> str:
    """The code with a name replaced wherever it is a name: not in strings, comments or other names."""
    lines = io.StringIO(text).readlines()  # as tokenize counts them
    names = (token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.NAME)
    for row, column in reversed([token.start for token in names if token.string == old]):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column]}{new}{line[column + len(old) :]}"
    return "".join(lines)
