"""The profile pane: the profile of the selected row, with its age and source.

Without a profile it shows what the timing run measured. A profile of an older source stays, marked as stale.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from textual.message import Message

from harness.shared import format as fmt
from kernbench import render
from kernbench.events import ProfileFailed, ProfileReady, ProfileStarted
from kernbench.ncu import profile_text
from kernbench.tui.state.board import Row
from kernbench.tui.text.spans import Span, clean, spell
from kernbench.tui.widgets.row_view import RowView

Answer = ProfileStarted | ProfileReady | ProfileFailed
Known = Mapping[str, Sequence[str]]
NOTHING: Known = MappingProxyType({})


def lines(
    row: Row | None, answer: Answer | None, source: str, now: datetime, width: int, tried: Known = NOTHING
) -> list[list[Span]]:
    """`source` is the hash of the last run's source; `tried` has what the logs know of techniques, by name."""
    width = max(width, 10)
    if row is None:
        return [[("the task has no rows", "dim")]]
    label = clean(row.case.label)
    if isinstance(answer, ProfileReady):
        return _profiled(answer, source, now, width, tried)
    if isinstance(answer, ProfileStarted):
        return _wrapped([(f"profiling {label}" + ("" if answer.warm else " (starting ncu)"), "accent")], width)
    if isinstance(answer, ProfileFailed):
        facts = profile_text.facts_lines(answer.known.facts, width) if answer.known else []
        said = _wrapped([(clean(render.place(answer.where, answer.message)), "warn")], width)
        return said + [[(clean(line), "")] for line in facts]
    return _wrapped(_unprofiled(row), width)


def _wrapped(spans: Sequence[Span] | Iterator[Span], width: int) -> list[list[Span]]:
    return [[(part, style)] for text, style in spans for part in textwrap.wrap(text, width) or [""]]


def _profiled(answer: ProfileReady, source: str, now: datetime, width: int, tried: Known) -> list[list[Span]]:
    profile = answer.profile
    about = f"{render.age(profile.at, now)} old, source {profile.source[:8]}"
    stale = bool(source) and profile.source != source
    head = (f"stale: {about}; another source has run", "warn") if stale else (about, "dim")
    summary = profile_text.summary_lines(profile, answer.diagnosis, answer.other, width, tried)
    return _wrapped([head], width) + [[(clean(line), "strong" if line.startswith("=>") else "")] for line in summary]


def _unprofiled(row: Row) -> Iterator[Span]:
    yield f"{clean(row.case.label)}: not profiled yet", "strong"
    result = row.result
    if result is None:
        yield "not run yet", "dim"
        return
    if result.failed or result.status == "skipped":
        yield f"{render.STATUS_WORDS[result.status]}: nothing was timed", "dim"
        return
    facts = [
        f"{fmt.microseconds(result.solution_us)} us per call ({result.clock} time)" if result.solution_us else "",
        fmt.roof(result.roofline, bound=result.bound) if result.roofline is not None else "",
        f"{fmt.plural(result.kernels, 'kernel')} per call" if result.kernels is not None else "",
        *(clean(finding.name) for finding in result.findings),
    ]
    known = [fact for fact in facts if fact]
    yield ("measured without a profile:" if known else "nothing else is known"), "dim"
    for fact in known:
        yield fact, ""


class ProfilePane(RowView):
    HEADER = 0
    HAS_CURSOR = False

    class Rewrapped(Message):
        """It has more or fewer lines in its new width."""

    def __init__(self, now: Callable[[], datetime], ascii_only: bool) -> None:
        super().__init__(id="profile", ascii_only=ascii_only)
        self._now = now
        self._row: Row | None = None
        self._source = ""
        self._answers: dict[str, Answer] = {}
        self._lines: list[list[Span]] = []
        self._tried = NOTHING

    def remember(self, answers: Mapping[str, ProfileReady]) -> None:
        """Add stored profiles, by case."""
        self._answers = {**answers, **self._answers}

    def know(self, tried: Known) -> None:
        """Take what the logs know of techniques, by name."""
        self._tried = tried
        self._fill()

    def hear(self, answer: Answer) -> None:
        self._answers[answer.case] = answer
        self._fill()

    def show(self, row: Row | None, source: str) -> None:
        """Show the selected row; `source` is the hash of the last run's source."""
        self._row, self._source = row, source
        self._fill()

    def on_resize(self) -> None:
        before = len(self._lines)
        self._fill()
        if len(self._lines) != before:
            self.post_message(self.Rewrapped())

    def count(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return [(spell(text, self.ascii_only), style) for text, style in self._lines[index]]

    def _fill(self) -> None:
        if not self.size.width:  # out of view; wrapped to no width, it would ask for a line per word
            return
        answer = self._answers.get(self._row.case.id) if self._row else None
        found = lines(self._row, answer, self._source, self._now(), self.line_width, self._tried)
        if found != self._lines:
            self._lines = found
            self.reshape()
