"""The profile pane: what explains the selected row, with its age and where it comes from.

Without a profile it says so, and shows what the measurement itself knows of the row.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernbench import render
from kernbench.tui.board import Row
from kernbench.tui.rows import RowView
from kernbench.tui.spans import Span, clean, spell


@dataclass(frozen=True)
class Profile:
    """A summary to read, as the profiler's reader wrote it."""

    text: str
    age: str
    source: str
    """What it was taken of: `iteration 12`, `the baseline`."""
    stale: bool = False
    """The row has another source by now."""


def lines(row: Row | None, profile: Profile | None, width: int) -> list[list[Span]]:
    if row is None:
        return [[("the task has no rows", "dim")]]
    found = list(_profiled(profile) if profile else _unprofiled(row))
    return [[(part, style)] for text, style in found for part in textwrap.wrap(text, max(width, 10)) or [""]]


def _profiled(profile: Profile) -> Iterator[Span]:
    age = f"{profile.age} old, of {profile.source}"
    yield (f"stale: {age}; the row has another source now", "warn") if profile.stale else (age, "dim")
    for part in profile.text.splitlines():
        yield clean(part), ""


def _unprofiled(row: Row) -> Iterator[Span]:
    yield f"{clean(row.case.label)}: not profiled", "strong"
    result = row.result
    if result is None:
        yield "not run yet either", "dim"
        return
    if result.failed or result.status == "skipped":
        yield f"{render.STATUS_WORDS[result.status]}: nothing was timed", "dim"
        return
    facts = [
        f"{render.microseconds(result.solution_us)} us a call ({result.clock} time)" if result.solution_us else "",
        f"{render.percent(result.light)} of the speed of light" if result.light is not None else "",
        _kernels(result.kernels),
        *(clean(finding.name) for finding in result.findings),
    ]
    known = [fact for fact in facts if fact]
    yield ("known without a profile:" if known else "nothing else is known of it"), "dim"
    for fact in known:
        yield fact, ""


def _kernels(count: int | None) -> str:
    return "" if count is None else "1 kernel a call" if count == 1 else f"{count} kernels a call"


class ProfilePane(RowView):
    HEADER = 0
    HAS_CURSOR = False

    def __init__(self, ascii_only: bool) -> None:
        super().__init__(id="profile", ascii_only=ascii_only)
        self._row: Row | None = None
        self._profile: Profile | None = None
        self._lines: list[list[Span]] = []

    def show(self, row: Row | None, profile: Profile | None = None) -> None:
        self._row, self._profile = row, profile
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def count(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return [(spell(text, self.ascii_only), style) for text, style in self._lines[index]]

    def _fill(self) -> None:
        found = lines(self._row, self._profile, self.line_width)
        if found != self._lines:
            self._lines = found
            self.reshape()
