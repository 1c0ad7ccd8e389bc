"""Text from a kernel, a task, a log, a file name or a tool, made harmless for where it is shown: one function each.

Only characters are removed, never what is between them, so nothing that a reader should see can be hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""What a terminal obeys instead of showing: C0, DEL, C1 and changes of direction; a line may end in CR LF."""
_RAW_HTML = re.compile(r"(?<!\\)((?:\\\\)*)(?=<[A-Za-z/!?])")
_IMAGE = re.compile(r"(?<!\\)((?:\\\\)*)(?=!\[)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""How a cell begins that a spreadsheet would run."""


def plain(text: str) -> str:
    """For a terminal and for files that end up in one."""
    return _LONE_SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


def markdown(text: str) -> str:
    """Without raw HTML and images, which a viewer would fetch. Text that is escaped already stays as it is."""
    return _IMAGE.sub(r"\1\\", _RAW_HTML.sub(r"\1\\", plain(text)))


def fenced(lines: Sequence[str], language: str) -> list[str]:
    """A block of code in Markdown, with a fence that none of its lines can close."""
    runs = re.findall("`+", "\n".join(lines))
    fence = "`" * max([3, *(len(run) + 1 for run in runs)])
    return [f"{fence}{language}", *map(plain, lines), fence]


def csv_cell(text: str) -> str:
    """A text that a spreadsheet shows instead of running; numbers stay numbers."""
    cleaned = plain(text)
    return f"'{cleaned}" if text.startswith(_FORMULA) and not _is_number(text) else cleaned


def json_text(text: str) -> str:
    """Encoded JSON, with the characters that JSON itself leaves unescaped."""
    escape = lambda found: "".join(f"\\u{ord(sign):04x}" for sign in found[0])  # noqa: E731
    return _LONE_SURROGATES.sub(escape, _CONTROLS.sub(escape, text))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
