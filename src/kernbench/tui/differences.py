"""Two sources side by side or as one text: pure lines, marked by what changed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernbench.tui.spans import Span, clean, clip, pad

CONTEXT = 3
SIDE_BY_SIDE_FROM = 130
"""Cells from which two columns of code have room."""
Line = list[Span]
Sources = Mapping[str, str]
"""File name to text."""


def lines(old: Sources, new: Sources, width: int, columns: bool) -> list[Line]:
    """Only the files that differ, with a little of what is around each change."""
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if not changed:
        return [[("no difference", "dim")]]
    found: list[Line] = []
    for name in changed:
        before, after = (_split(source.get(name, "")) for source in (old, new))
        found += [[(_headline(name, old, new), "head")], *(_columns if columns else _unified)(before, after, width), []]
    return found[:-1]


def _headline(name: str, old: Sources, new: Sources) -> str:
    return f"{clean(name)}{'' if name in new else ' (gone)'}{'' if name in old else ' (new)'}"


def _split(text: str) -> list[str]:
    return [clean(line) for line in text.splitlines()]


def _groups(before: Sequence[str], after: Sequence[str]) -> Iterable[list[tuple[str, int, int, int, int]]]:
    return difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT)


def _unified(before: Sequence[str], after: Sequence[str], width: int) -> Iterator[Line]:
    for group in _groups(before, after):
        yield [(f"@@ line {group[0][3] + 1} @@", "accent")]
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from ([(f"  {line}", "dim")] for line in after[j1:j2])
                continue
            yield from ([(f"- {line}", "bad")] for line in before[i1:i2])
            yield from ([(f"+ {line}", "faster")] for line in after[j1:j2])


def _columns(before: Sequence[str], after: Sequence[str], width: int) -> Iterator[Line]:
    half = (width - 3) // 2
    for group in _groups(before, after):
        yield [(f"@@ line {group[0][3] + 1} @@", "accent")]
        for tag, i1, i2, j1, j2 in group:
            for offset in range(max(i2 - i1, j2 - j1)):
                left = _cell(before, i1 + offset, i2, half)
                right = _cell(after, j1 + offset, j2, half)
                same = tag == "equal"
                yield [
                    (pad(left, half), "dim" if same else "bad"),
                    (" | ", "dim"),
                    (clip(right, half), "dim" if same else "faster"),
                ]


def _cell(text: Sequence[str], index: int, end: int, width: int) -> str:
    return clip(f"{index + 1:>4} {text[index]}", width) if index < end else ""
