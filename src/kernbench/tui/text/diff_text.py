"""The diff of two sources as lines, side by side or unified, in colors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from rich.cells import cell_len

from kernbench.tui.text import code_text
from kernbench.tui.text.code_text import Line
from kernbench.tui.text.spans import clean

CONTEXT = 3
NUMBER = 5
"""Cells of a line number and the blank after it."""
SIDE_BY_SIDE_FROM = 120
"""Cells from which two columns of code fit."""
Sources = Mapping[str, str]
"""File name to text."""
Opcode = tuple[str, int, int, int, int]
NOTHING: Line = []


def lines(old: Sources, new: Sources, width: int, columns: bool) -> list[Line]:
    """The files that differ, with a few lines of context around each change."""
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if not changed:
        return [[("no difference", "dim")]]
    found: list[Line] = []
    for name in changed:
        diff = _Diff(name, *(_split(source.get(name, "")) for source in (old, new)))
        found += [[(_headline(name, old, new), "head")], *(diff.columns if columns else diff.unified)(width), []]
    return found[:-1]


def _headline(name: str, old: Sources, new: Sources) -> str:
    return f"{clean(name)}{'' if name in new else ' (deleted)'}{'' if name in old else ' (new)'}"


def _split(text: str) -> list[str]:
    return [clean(line) for line in text.splitlines()]


class _Diff:
    """Of one file: lines that stay have the language's colors, changed ones say what changed in them."""

    def __init__(self, name: str, before: Sequence[str], after: Sequence[str]) -> None:
        self._before, self._after = before, after
        self._colored = code_text.colored(name, after)

    def unified(self, width: int) -> Iterator[Line]:
        for group in self._groups():
            yield [(f"@@ line {group[0][3] + 1} @@", "accent")]
            for opcode in group:
                if opcode[0] == "equal":
                    yield from _marked("  ", self._colored[opcode[3] : opcode[4]], width)
                    continue
                left, right = self._changed(opcode)
                yield from _marked("- ", left, width)
                yield from _marked("+ ", right, width)

    def columns(self, width: int) -> Iterator[Line]:
        half = (width - 3) // 2
        for group in self._groups():
            yield [(f"@@ line {group[0][3] + 1} @@", "accent")]
            for opcode in group:
                tag, i1, i2, j1, j2 = opcode
                same = self._colored[j1:j2]
                left, right = (same, same) if tag == "equal" else self._changed(opcode)
                for offset in range(max(i2 - i1, j2 - j1)):
                    one = _cell(left, offset, i1, half)
                    other = _cell(right, offset, j1, half)
                    for first, second in zip_longest(one, other, fillvalue=NOTHING):
                        yield [*_filled(first, half), (" | ", "dim"), *second]

    def _groups(self) -> Iterable[list[Opcode]]:
        matcher = difflib.SequenceMatcher(None, self._before, self._after, autojunk=False)
        return matcher.get_grouped_opcodes(CONTEXT)

    def _changed(self, opcode: Opcode) -> tuple[list[Line], list[Line]]:
        """The removed and the added lines; each is compared with the one in its place."""
        _tag, i1, i2, j1, j2 = opcode
        both = min(i2 - i1, j2 - j1)
        pairs = [
            code_text.changed_parts(old, new)
            for old, new in zip(self._before[i1 : i1 + both], self._after[j1 : j1 + both], strict=True)
        ]
        left: list[Line] = [[(line, "removed")] for line in self._before[i1 + both : i2]]
        right: list[Line] = [[(line, "added")] for line in self._after[j1 + both : j2]]
        return [old for old, _ in pairs] + left, [new for _, new in pairs] + right


def _marked(mark: str, given: Sequence[Line], width: int) -> Iterator[Line]:
    """Long lines continue below, without the mark."""
    style = {"- ": "removed", "+ ": "added"}.get(mark, "")
    for line in given:
        first, *rest = code_text.wrapped(line, width - len(mark))
        yield [(mark, style), *first]
        yield from ([(" " * len(mark), ""), *part] for part in rest)


def _cell(given: Sequence[Line], offset: int, begin: int, width: int) -> list[Line]:
    """A numbered line, wrapped."""
    if offset >= len(given):
        return []
    first, *rest = code_text.wrapped(given[offset], width - NUMBER)
    return [[(f"{begin + offset + 1:>{NUMBER - 1}} ", "dim"), *first], *([(" " * NUMBER, ""), *part] for part in rest)]


def _filled(line: Line, width: int) -> Line:
    return [*line, (" " * max(width - sum(cell_len(text) for text, _ in line), 0), "")]
