"""A line of text that sends only its changed cells: a new count costs just its digits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from rich.cells import cell_len
from textual.geometry import Region

from kernbench.tui.text.spans import Span
from kernbench.tui.widgets.row_view import RowView

Styled = list[tuple[str, str]]
"""Each character with the name of its style."""


class StatusLine(RowView, can_focus=False):
    HEADER = 0
    HAS_CURSOR = False
    GUTTER = ""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._spans: list[Span] = []
        self._painted: list[Span] = []
        """As last drawn: a refresh that comes together with a new layout may be lost."""

    def count(self) -> int:
        return 1

    def line(self, index: int, width: int) -> Sequence[Span]:
        self._painted = self._spans
        return self._spans

    def show(self, spans: list[Span]) -> None:
        self._spans = spans
        if spans == self._painted:
            return
        begin, end = changed(self._painted, spans)
        if begin < end:
            self.refresh(Region(begin, 0, end - begin, 1))


def changed(before: Sequence[Span], now: Sequence[Span]) -> tuple[int, int]:
    """The range of cells that differ; empty if none do."""
    old, new = _styled(before), _styled(now)
    same = _alike(old, new)
    begin = _cells(old[:same])
    whole, other = _cells(new), _cells(old)
    if whole != other:
        return begin, max(whole, other)
    tail = _alike(old[same:][::-1], new[same:][::-1])
    return begin, whole - _cells(new[len(new) - tail :])


def _styled(spans: Sequence[Span]) -> Styled:
    return [(character, style) for text, style in spans for character in text]


def _alike(one: Styled, other: Styled) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _cells(styled: Styled) -> int:
    return cell_len("".join(character for character, _ in styled))
