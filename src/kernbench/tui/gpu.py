"""The GPU pane: the machine's meters, painted where a figure changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.geometry import Region

from kernbench.telemetry import Sample
from kernbench.tui.meters import Meters
from kernbench.tui.rows import GUTTER, RowView
from kernbench.tui.spans import Span


class Gpu(RowView):
    HEADER = 0
    HAS_CURSOR = False

    def __init__(self, ascii_only: bool) -> None:
        super().__init__(id="gpu", ascii_only=ascii_only)
        self.meters = Meters(ascii_only)
        self._shown: list[list[Span]] = self.meters.lines(1)

    def on_mount(self) -> None:
        self.reshape()

    def on_resize(self) -> None:
        self._shown = self.meters.lines(self.line_width)
        self.reshape()

    def take(self, sample: Sample) -> None:
        self.meters.take(sample)
        before, self._shown = self._shown, self.meters.lines(self.line_width)
        if len(before) != len(self._shown):
            self.reshape()
            return
        for y, (old, new) in enumerate(zip(before, self._shown, strict=True)):
            if old != new:
                left, right = _changed(old, new)
                line = y - self.scroll_offset.y
                if 0 <= line < self.size.height:
                    self.refresh(Region(left + GUTTER, line, right - left, 1))

    def count(self) -> int:
        return len(self._shown)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return self._shown[index]


def _changed(old: list[Span], new: list[Span]) -> tuple[int, int]:
    """Cells between which two lines differ; the whole line where a style does."""
    before, after = "".join(text for text, _ in old), "".join(text for text, _ in new)
    most = max(cell_len(before), cell_len(after))
    if [style for _, style in old] != [style for _, style in new] or not before.isascii() or not after.isascii():
        return _changed_spans(old, new, most)
    return _between(before, after)


def _changed_spans(old: list[Span], new: list[Span], most: int) -> tuple[int, int]:
    """The same for lines with sparklines: spans that stayed keep their cells."""
    if [(cell_len(text), style) for text, style in old] != [(cell_len(text), style) for text, style in new]:
        return 0, most
    left, right, at = most, 0, 0
    for (before, _), (after, _) in zip(old, new, strict=True):
        width = cell_len(after)
        if before != after:
            start, end = _between(before, after) if before.isascii() and after.isascii() else (0, width)
            left, right = min(left, at + start), max(right, at + end)
        at += width
    return left, right


def _between(before: str, after: str) -> tuple[int, int]:
    most = max(len(before), len(after))
    before, after = before.ljust(most), after.ljust(most)
    different = [index for index in range(most) if before[index] != after[index]]
    return different[0], different[-1] + 1
