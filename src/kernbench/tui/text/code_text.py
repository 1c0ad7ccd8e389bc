"""Source code as spans: colors by Pygments' tokens, and the parts of a line that differ from another."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rich.cells import cell_len

from kernbench.tui.text.spans import Span

Line = list[Span]
LONGEST = 200_000
"""Characters that are colored: Pygments takes about a second for a megabyte."""
ALIKE = 0.4
"""Two lines that share less than this are another line each, not one that changed."""
MOST_PAIRS = 250_000
"""Words of two lines that are compared with each other; a table in one line would take seconds."""
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_LEXERS = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".cpp": "cpp", ".cc": "cpp", ".c": "cpp", ".h": "cpp"}
_STYLES = {"Keyword": "keyword", "Operator.Word": "keyword", "Name.Decorator": "keyword", "Comment.Preproc": "keyword",
           "Comment": "comment", "String": "string", "Number": "number"}  # fmt: skip


def colored(name: str, lines: Sequence[str]) -> list[Line]:
    """The lines of a file; without colors if its language is not known."""
    kind = _LEXERS.get(name[name.rfind(".") :], "")
    text = "\n".join(lines)
    if not kind or not lines or len(text) > LONGEST:
        return [[(line, "")] for line in lines]
    found: list[Line] = [[]]
    for token, value in _lexer(kind).get_tokens(text):
        style = _style(str(token))
        for index, part in enumerate(value.split("\n")):
            if index:
                found.append([])
            if part:
                found[-1].append((part, style))
    return found[: len(lines)]


@lru_cache
def _lexer(kind: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # imported here: it takes 20 ms

    return get_lexer_by_name(kind, stripnl=False)


@lru_cache
def _style(token: str) -> str:
    """`Token.Literal.String.Doc` is a string."""
    known = (style for name, style in _STYLES.items() if f".{name}" in token)
    return next(known, "")


def changed_parts(old: str, new: str) -> tuple[Line, Line]:
    """The two lines, with what differs marked; as a whole if they have little in common."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if len(before) * len(after) > MOST_PAIRS or matcher.quick_ratio() < ALIKE or matcher.ratio() < ALIKE:
        return [(old, "removed")], [(new, "added")]
    left: Line = []
    right: Line = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        part = "" if tag == "equal" else "-part"
        left += [("".join(before[i1:i2]), f"removed{part}")] if i1 < i2 else []
        right += [("".join(after[j1:j2]), f"added{part}")] if j1 < j2 else []
    return left, right


def wrapped(line: Line, width: int) -> list[Line]:
    """Pieces of at most `width` cells, cut at the edge and not at words: in code every blank counts."""
    found: list[Line] = [[]]
    left = width = max(width, 2)
    for text, style in line:
        piece = ""
        for character in text:
            cells = cell_len(character)
            if cells > left:
                found[-1] += [(piece, style)] if piece else []
                found.append([])
                piece, left = "", width
            piece, left = piece + character, left - cells
        found[-1] += [(piece, style)] if piece else []
    return found
