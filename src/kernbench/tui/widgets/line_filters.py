"""The last step before the terminal: every line of every widget passes through here.

For an ASCII-only terminal, our signs are replaced earlier, while a column can still make room for `+-`. Text that
arrives here is already laid out: a compiler's quotes, a hypothesis, a border. Each sign becomes its look-alike, or `?`,
in exactly as many cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from kernbench.machine.plain_text import plain

_LOOK_ALIKES = {
    "'": "‘’‚‛′´",
    '"': "“”„‟″«»",
    "-": "‐‑‒–—―−·•∙─━",
    "~": "…±≈",
    "<": "‹≤←",
    ">": "›≥→",
    "x": "×✕✗",
    "u": "µμ",
    "^": "▲↑",
    "v": "▼↓✓",
    "|": "│┃",
    "+": "┌┐└┘├┤┬┴┼╭╮╰╯",
    "#": "█▌▐▀▄▁▂▃▅▆▇▔▕▏",
    " ": "\u00a0\u2007\u2009\u202f",
}
_TRANSLATED = str.maketrans({sign: plain for plain, signs in _LOOK_ALIKES.items() for sign in signs})


@lru_cache(maxsize=4096)
def in_ascii(text: str) -> str:
    """The text in ASCII, in as many cells."""
    plain = text.translate(_TRANSLATED)
    plain = "".join(sign if sign.isascii() else "?" * cell_len(sign) for sign in plain)
    cells = cell_len(text)  # combined signs (a family emoji) differ in width from their parts
    return plain[:cells].ljust(cells)


class TextOnly(LineFilter):
    """Removes what a terminal would obey, from whichever widget: a page may forget to, and a prompt shows a log's
    words as they are."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [
            segment if segment.text.isprintable() else Segment(plain(segment.text), segment.style, segment.control)
            for segment in segments
        ]


class AsciiOnly(LineFilter):
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(in_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


class InOne(LineFilter):
    """Several filters as one: for each, Textual looks up every line of every widget that a paint touches."""

    def __init__(self, filters: Sequence[LineFilter]) -> None:
        super().__init__()
        self.filters = filters

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        for each in self.filters:
            segments = each.apply(segments, background)
        return segments
