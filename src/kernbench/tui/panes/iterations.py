"""The iterations pane: newest first, one line each. Enter opens the entry of ITERATIONS.md; two can be marked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Region

from harness.shared import format as fmt
from kernbench import render
from kernbench.events import Summary
from kernbench.log.entries import entry_text
from kernbench.log.entries.entry_list import EntryList, key_of
from kernbench.tui.text.spans import Span, clean, clip, pad
from kernbench.tui.widgets.row_view import RowView

BEST_NOW = "*"
MARK = "+"
AGE_FROM = 48
"""Cells from which the age fits."""
AGE_AT, AGE = 5, 7
"""Where in the line the age is, and its cells."""
AGE_SECONDS, MINUTE = 10.0, 6
"""How often ages in seconds are looked at, and after how many such looks the others."""
MOST_AGES = 12
"""Lines painted for their age at a time, the longest unpainted first: each takes 130 bytes, and a screen at rest may
send 40 a second."""
OUTCOME = 9
"""Cells of an outcome, with its mark."""
_SHORT = {"build error": "build err"}
_STYLES = {
    "improved": "faster",
    "first": "faster",
    "best": "faster",
    render.UNSETTLED: "faster",
    "faster": "faster",
    "slower": "slower",
    "refused": "slower",
}


class Iterations(RowView):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "open",
            "entry",
            key_display="enter",
            tooltip="show the entry, its source and diff",
            id="open_entry",
        ),
        Binding(
            "c", "app.mark_entry", "mark", tooltip="mark it; d then compares the two marked ones", id="iterations.mark"
        ),
        Binding(
            "D", "app.drop_entry", "drop", show=False, tooltip="drop its entry from ITERATIONS.md", id="iterations.drop"
        ),
    ]

    def __init__(self, now: Callable[[], datetime], ascii_only: bool) -> None:
        super().__init__(id="iterations", ascii_only=ascii_only)
        self._now = now
        self._iterations: Sequence[Summary] = ()
        """By number; read as they scroll into view."""
        self.reading = False
        """The log is still being read."""
        self.usual = ""
        """The task's baseline: runs against another one show its name."""
        self.marked: list[Summary] = []
        """At most two, in the order in which they were marked."""
        self._ages: dict[int, str] = {}
        """As painted, by index; the longest unpainted first."""
        self._ticks = 0

    def on_mount(self) -> None:
        self.set_interval(AGE_SECONDS, self.tick)

    def tick(self) -> None:
        """Paint ages in view that have changed, and nothing to the right of them."""
        self._ticks += 1
        top = self.scroll_offset.y
        in_view = range(top, min(top + self.size.height - self.HEADER, self.count()))
        self._ages = {index: shown for index, shown in self._ages.items() if index in in_view}
        looked_at = [index for index, shown in self._ages.items() if shown.endswith(" s") or self._ticks % MINUTE == 0]
        changed = [index for index in looked_at if self._age(index) != self._ages[index]]
        for index in changed[:MOST_AGES]:
            self.refresh(Region(len(self.GUTTER) + AGE_AT, index + self.HEADER - top, AGE, 1))

    def _age(self, index: int) -> str:
        return render.age(self._iterations[-1 - index].at, self._now())

    def mark(self) -> None:
        """Mark the selected iteration, or unmark it; a third one takes the place of the first."""
        chosen = self.selected
        if chosen is not None:
            others = [item for item in self.marked if key_of(item) != key_of(chosen)]
            self.marked = others if len(others) < len(self.marked) else [*others, chosen][-2:]
            self.reshape()

    def show(self, iterations: Sequence[Summary]) -> None:
        """Keep the cursor on its iteration, or on the newest if it was there."""
        before = self.selected if self.cursor else None
        self._iterations = iterations
        self._ages.clear()
        if before is not None:
            self._select(before)
        self.reshape()

    def _select(self, wanted: Summary) -> None:
        """Select by number, and by source if two share the number."""
        place = bisect_right(self._iterations, wanted.iteration or 0, key=lambda summary: summary.iteration or 0) - 1
        while place >= 0 and self._iterations[place].iteration == wanted.iteration:
            self.cursor = self.count() - 1 - place
            if self._iterations[place].source == wanted.source:
                return
            place -= 1

    @property
    def selected(self) -> Summary | None:
        return self._iterations[-1 - self.cursor] if self.cursor < self.count() else None

    def count(self) -> int:
        return len(self._iterations)

    def lines(self) -> int:
        return max(self.count(), 1)

    def header(self, width: int) -> Sequence[Span]:
        age = pad("age", AGE) if width >= AGE_FROM else ""
        said = f"{'#':>4} {age}{'geomean':>7} {pad('outcome', OUTCOME)} hypothesis"
        known = isinstance(self._iterations, EntryList) and self._iterations.best_now is not None
        legends = (f"  {BEST_NOW} best now", f"  {BEST_NOW} best") if known else ()
        legend = next((form for form in legends if len(said) + len(form) <= width), "")
        return [(clip(said + legend, width), "head")]

    def line(self, index: int, width: int) -> Sequence[Span]:
        if not self._iterations:
            said = "reading the log" if self.reading else "no iterations yet: save the solution to make the first"
            return [(clip(said, width), "dim")]
        summary = self._iterations[-1 - index]
        word = render.outcome(summary)
        mark = BEST_NOW if isinstance(self._iterations, EntryList) and self._iterations.is_best_now(summary) else ""
        word = "best" if mark and word in ("undecided", render.UNSETTLED) else word  # a later run has decided it
        here = summary.local_run
        style = _STYLES.get(word, "" if summary.right else "bad") if here else "dim"  # another machine's number
        age = ""
        if width >= AGE_FROM:
            self._ages.pop(index, None)
            self._ages[index] = self._age(index)
            age = pad(self._ages[index], AGE)
        is_marked = any(key_of(item) == key_of(summary) for item in self.marked)
        stalled = "stalled | " if summary.stalled else ""
        room = width - 23 - len(age) - len(stalled)
        return [
            (f"{summary.iteration:>4}" + ("" if is_marked else " "), "strong"),
            (MARK if is_marked else "", "accent"),
            (age, "dim"),
            (f"{fmt.times((here or summary).geomean):>7} ", style),
            (pad(_SHORT.get(word, word) + mark, OUTCOME) + " ", style),
            (stalled, "warn"),
            (clip(clean(entry_text.words(summary, self.usual)), room), ""),
        ]
