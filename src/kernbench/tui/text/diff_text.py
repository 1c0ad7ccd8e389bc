"""The diff of two sources as lines, side by side or unified."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from rich.cells import chop_cells

from kernbench.tui.text.spans import Span, clean, pad

CONTEXT = 3
NUMBER = 5
"""Cells of a line number and the blank after it."""
SIDE_BY_SIDE_FROM = 120
"""Cells from which two columns of code fit."""
Line = list[Span]
Sources = Mapping[str, str]
"""File name to text."""


def lines(old: Sources, new: Sources, width: int, columns: bool) -> list[Line]:
    """The files that differ, with a few lines of context around each change."""
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if not changed:
        return [[("no difference", "dim")]]
    found: list[Line] = []
    for name in changed:
        before, after = (_split(source.get(name, "")) for source in (old, new))
        found += [[(_headline(name, old, new), "head")], *(_columns if columns else _unified)(before, after, width), []]
    return found[:-1]


def _headline(name: str, old: Sources, new: Sources) -> str:
    return f"{clean(name)}{'' if name in new else ' (deleted)'}{'' if name in old else ' (new)'}"


def _split(text: str) -> list[str]:
    return [clean(line) for line in text.splitlines()]


def _groups(before: Sequence[str], after: Sequence[str]) -> Iterable[list[tuple[str, int, int, int, int]]]:
    return difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT)


def _unified(before: Sequence[str], after: Sequence[str], width: int) -> Iterator[Line]:
    for group in _groups(before, after):
        yield [(f"@@ line {group[0][3] + 1} @@", "accent")]
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from _marked("  ", after[j1:j2], width, "dim")
                continue
            yield from _marked("- ", before[i1:i2], width, "bad")
            yield from _marked("+ ", after[j1:j2], width, "faster")


def _marked(mark: str, text: Sequence[str], width: int, style: str) -> Iterator[Line]:
    """Long lines continue below, without the mark."""
    for line in text:
        first, *rest = wrapped(line, width - len(mark))
        yield [(mark + first, style)]
        yield from ([(" " * len(mark) + part, style)] for part in rest)


def _columns(before: Sequence[str], after: Sequence[str], width: int) -> Iterator[Line]:
    half = (width - 3) // 2
    for group in _groups(before, after):
        yield [(f"@@ line {group[0][3] + 1} @@", "accent")]
        for tag, i1, i2, j1, j2 in group:
            styles = ("dim", "dim") if tag == "equal" else ("bad", "faster")
            for offset in range(max(i2 - i1, j2 - j1)):
                left = _cell(before, i1 + offset, i2, half)
                right = _cell(after, j1 + offset, j2, half)
                for one, other in zip_longest(left, right, fillvalue=""):
                    yield [(pad(one, half), styles[0]), (" | ", "dim"), (other, styles[1])]


def _cell(text: Sequence[str], index: int, end: int, width: int) -> list[str]:
    """A numbered line, wrapped."""
    if index >= end:
        return []
    first, *rest = wrapped(text[index], width - NUMBER)
    return [f"{index + 1:>{NUMBER - 1}} {first}", *(" " * NUMBER + part for part in rest)]


def wrapped(text: str, width: int) -> list[str]:
    """Pieces of at most `width` cells, cut at the edge and not at words: in code every blank counts."""
    return chop_cells(text, max(width, 2)) or [""]
