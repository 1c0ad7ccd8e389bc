"""What the terminal shows, cell by cell, so that a paint sends only the cells that differ.

Textual sends every widget that moved or changed as a whole, with all colors of every piece of text: 13 kB for another
pane at 120x40, most of it blank or as before. A paint of the whole screen is still sent as a whole: it follows a resize
or a program that used the terminal in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

BRIDGE = 10
"""Unchanged cells that are sent along between two changes: a move of the cursor costs about as much."""


class Look(NamedTuple):
    """A style as parameters of the terminal's escape sequence."""

    attributes: str = ""
    fore: str = "39"
    back: str = "49"


Cell = tuple[str, Look]
"""A character and its look; the second cell of a wide character has an empty one."""
UNKNOWN: Cell = ("?", Look("unknown"))
PLAIN = Look()


class SentCells:
    def __init__(self) -> None:
        self._lines: list[list[Cell]] = []
        self._size = (0, 0)

    def encode(
        self,
        size: tuple[int, int],
        pieces: Iterable[tuple[int, int, Iterable[Segment]]],
        whole: bool,
        system: ColorSystem,
    ) -> str:
        """The escape sequences for pieces of lines, each with its y and x; all of them with `whole`."""
        width, height = size
        if whole or size != self._size:
            self._size = size
            self._lines = [[UNKNOWN] * width for _ in range(height)]
        written: list[str] = []
        look: Look | None = None
        for y, x, segments in pieces:
            if not 0 <= y < height:
                continue
            cells, line = cells_of(segments, system)[: width - x], self._lines[y]
            for begin, end in changes(line[x : x + len(cells)], cells):
                written.append(f"\x1b[{y + 1};{x + begin + 1}H")
                look = _write(written, cells[begin:end], look)
            line[x : x + len(cells)] = cells
        return "".join([*written, "\x1b[0m"]) if look not in (None, PLAIN) else "".join(written)


def cells_of(segments: Iterable[Segment], system: ColorSystem) -> list[Cell]:
    cells: list[Cell] = []
    for text, style, control in segments:
        if not control:
            cells += _cells_of_text(text, style, system)
    return cells


@lru_cache(maxsize=4096)
def _cells_of_text(text: str, style: Style | None, system: ColorSystem) -> list[Cell]:
    """Most text is painted again and again, and cells that are the same objects are compared at once."""
    look = look_of(style, system) if style is not None else PLAIN
    if text.isascii():
        return [(sign, look) for sign in text]
    cells: list[Cell] = []
    whole = cell_len(text)
    if whole != sum(map(cell_len, text)):  # an emoji of several characters: sent as a whole, or not at all
        return [(text, look), *[("", look)] * (whole - 1)]
    for sign in text:
        wide = cell_len(sign)
        if wide:
            cells += [(sign, look), *[("", look)] * (wide - 1)]
        elif cells:  # it combines with the character before
            cells[-1] = (cells[-1][0] + sign, look)
    return cells


def changes(old: Sequence[Cell], new: Sequence[Cell]) -> list[tuple[int, int]]:
    """The ranges to send. None begins or ends within a wide character, old or new."""
    if old == new:
        return []
    found: list[list[int]] = []
    for at, (before, now) in enumerate(zip(old, new, strict=True)):
        if before == now:
            continue
        if found and at - found[-1][1] <= BRIDGE:
            found[-1][1] = at + 1
        else:
            found.append([at, at + 1])
    for place in found:
        while place[0] > 0 and "" in (old[place[0]][0], new[place[0]][0]):
            place[0] -= 1
        while place[1] < len(new) and "" in (old[place[1]][0], new[place[1]][0]):
            place[1] += 1
    return [(begin, end) for begin, end in found]


@lru_cache(maxsize=1024)
def look_of(style: Style, system: ColorSystem) -> Look:
    fore = style.color.downgrade(system).get_ansi_codes() if style.color else [PLAIN.fore]
    back = style.bgcolor.downgrade(system).get_ansi_codes(foreground=False) if style.bgcolor else [PLAIN.back]
    rest = style.without_color.render(" ", color_system=system)
    return Look(rest.partition("m")[0].removeprefix("\x1b[") if rest != " " else "", ";".join(fore), ";".join(back))


def _write(written: list[str], cells: Sequence[Cell], before: Look | None) -> Look | None:
    """Append the cells; for a new look only what differs from the one before is sent."""
    for look, group in groupby(cells, key=itemgetter(1)):
        if look != before:
            written.append(f"\x1b[{_change(look, before)}m")
            before = look
        written.extend(map(itemgetter(0), group))
    return before


def _change(look: Look, before: Look | None) -> str:
    if before is None or (before.attributes and before.attributes != look.attributes):
        known, parts = PLAIN, ["0"]
    else:
        known, parts = before, []
    parts += [new for new, old in zip(look, known, strict=True) if new and new != old]
    return ";".join(parts)
