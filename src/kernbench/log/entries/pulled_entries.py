"""The iterations as people count them: entries made by runs on this machine, and pulled entries of ITERATIONS.md.

The log is committed with the kernel; its runs are not. A PulledEntry, which no run on this machine made, keeps the
values in its text. A later run of the same source is shown next to it and never replaces it.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.shared.lines import decode
from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import PulledEntry, Summary
from kernbench.log.entries import entry_text, iterations_file, old_entries, trailer
from kernbench.log.entries.edited_words import EditedWords
from kernbench.log.entries.entry_list import EntryList, Key, key_of
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import Series

MINUTE = len("2026-11-14T21:03")
UNDECODED = "surrogateescape"
"""Keeps bytes that are not UTF-8."""


class PulledEntries:
    """The entries of one log that were made on other machines. Rereads the file only when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_kept = False
        """After the first look only `refresh` looks at the file, for a caller that must not wait for a disk."""
        self._is_known = self._is_readable = False
        self.signature: tuple[int, int, int] | None = None
        """Of the file as known; to be set after this machine appended an entry, which spares another read."""
        self._found: list[PulledEntry] = []
        self._written: Counter[Key] = Counter()
        """How many entries share a number and source: two machines may have made one each."""
        self._unsigned: set[int] = set()
        """Numbers of single entries that do not name their source (any more)."""
        self._conflict: int | None = None
        self._unreadable = ""
        """Why the file cannot be read, in a sentence; empty too if there is no file."""
        self.edited = EditedWords()

    def current(self) -> bool:
        """Whether the file is unchanged since it was read."""
        try:
            return iterations_file.signature_of(self.path) == self.signature
        except OSError:
            return False

    def of(self, journal: Journal) -> list[PulledEntry]:
        """The entries in the file, except those that runs on this machine made."""
        if not (self.is_kept and self._is_known):
            self.refresh(journal)
        if not self._is_readable:
            return []
        made = _made(journal) if self._found else {}
        own = self._unsigned.intersection(number for number, _source in made)
        return [
            item
            for item in self._found
            if not (item.iteration in own or self._is_made(item, made.get(key_of(item), [])))
        ]

    def refresh(self, journal: Journal) -> None:
        """Reads the file again if it has changed."""
        try:
            signature = iterations_file.signature_of(self.path)
            if signature != self.signature:
                self._read(_made(journal))
                self.signature = signature
            self._is_readable, self._unreadable = True, ""
        except (OSError, NotRegular) as problem:
            self._is_readable, self._conflict = False, None
            self._unreadable = str(problem) if isinstance(problem, NotRegular) else ""
        self._is_known = True

    def _read(self, made: Mapping[Key, Sequence[Summary]]) -> None:
        text = _text(self.path)
        spans = _spans(text)
        shown = _shown(text)
        self._found = [span.parsed(shown) for span in _foreign(spans, made)]
        self._written = Counter(map(key_of, self._found))
        count = Counter(span.key[0] for span in spans)
        self._unsigned = {number for number, source in self._written if not source and count[number] == 1}
        self._conflict = iterations_file.conflict(text)
        self.edited.read((span.key[0], shown[span.start : span.end].replace("\r\n", "\n")) for span in spans)

    def _is_made(self, item: PulledEntry, runs: Sequence[Summary]) -> bool:
        """By runs here with this number and source. If the file has more such entries than runs, the run that the
        trailer names decides, or else the time."""
        if len(runs) >= self._written[key_of(item)]:
            return bool(runs)
        return any(run.run == item.run if item.run else run.at[:MINUTE] == item.at[:MINUTE] for run in runs)

    def problem(self, journal: Journal) -> str:
        """What is wrong with the file, in one sentence; empty if nothing is."""
        self.of(journal)
        if self._unreadable or self._conflict is None:
            return self._unreadable
        place = f"{self.path.name}:{self._conflict}"
        return f"{place}: unresolved merge; entries around the markers may contain each other's lines"

    def number_of(self, journal: Journal, source: str) -> int | None:
        """Number of the first entry with this exact source, from any machine."""
        written = [item.iteration for item in self.of(journal) if _is_about(item, source)]
        numbers = [number for number in (*written, journal.iteration_of(source)) if number is not None]
        return min(numbers, default=None)

    def iterations(
        self,
        journal: Journal,
        series: Series | None = None,
        best: Callable[[], Key | None] = lambda: None,
    ) -> EntryList:
        """Own and pulled entries, by number.

        A pulled one carries the first complete, correct run of its source on this machine, preferably of `series`.
        """
        written = self.of(journal)
        runs = _timed_again(journal, {key_of(item)[1] for item in written if item.source}, series)
        shown = [replace(item, again=runs[key]) if (key := key_of(item)[1]) in runs else item for item in written]
        return EntryList(journal.listed(), shown, best, self.edited.applied, series)


class Span(NamedTuple):
    """One entry of the file."""

    key: Key
    start: int
    begin: int
    """After the number in its heading."""
    end: int

    def parsed(self, text: str) -> PulledEntry:
        return parse(self.key[0], text[self.begin : self.end].replace("\r\n", "\n"), self.key[1])


def read(path: Path) -> list[PulledEntry]:
    """All entries of the file, from any machine."""
    return read_text(_text(path))


def read_with_text(path: Path) -> list[tuple[PulledEntry, str]]:
    """All entries of the file, each with its text."""
    text = _shown(_text(path))
    return [(span.parsed(text), text[span.start : span.end].replace("\r\n", "\n")) for span in _spans(text)]


def dropped(journal: Journal) -> list[PulledEntry]:
    """The pulled entries that `kernbench drop` removed from the file."""
    entries = [item for entry in journal.dropped if not entry.run for item in read_text(entry.text)]
    return [replace(item, dropped=True) for item in entries]


def read_text(text: str) -> list[PulledEntry]:
    text = _shown(text)
    return [span.parsed(text) for span in _spans(text)]


def _text(path: Path) -> str:
    """The file with every byte kept, valid UTF-8 or not."""
    return read_bytes(path, iterations_file.LARGEST).decode("utf-8", UNDECODED)


def _shown(text: str) -> str:
    """The text with a replacement character for each byte that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\udc80-\udcff]", "\N{REPLACEMENT CHARACTER}", text)
    return text


def _spans(text: str) -> list[Span]:
    headings = list(iterations_file.headings(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    spans: list[Span] = []
    for heading, end in zip(headings, ends, strict=False):  # without headings there is still an end
        when = iterations_file.WHEN.search(text, heading.end(), end)
        spans.append(Span((int(heading[1]), when[1] if when else ""), heading.start(), heading.end(), end))
    return spans


def _foreign(spans: Sequence[Span], made: Mapping[Key, Sequence[Summary]]) -> list[Span]:
    """Entries that may be pulled. Skipping those made here keeps a long local log cheap to read.

    If the file has more entries with a number and source than runs here made, all of them are included.
    """
    count = Counter(span.key for span in spans)
    own = {key for key, runs in made.items() if len(runs) >= count[key]}
    return [span for span in spans if span.key not in own]


def parse(number: int, text: str, source: str) -> PulledEntry:
    """An entry, given its text after the heading's number. Words come from the text, values from the trailer, unless
    that names another source or time."""
    fields, data = old_entries.fields(number, text, source), trailer.read(text)
    named = (str(data.get("source", "")), str(data.get("at", ""))) if data is not None else ("", "")
    is_own = named[0].startswith(source) and named[1].startswith(fields["at"][:MINUTE])
    values = trailer.applied(fields, data) if data is not None and is_own else fields
    return decode(PulledEntry, {**values, "environment": _environment(*values["environment"].items())})


@functools.lru_cache(maxsize=64)
def _environment(*fields: tuple[str, Any]) -> Environment:
    """Shared by all entries with the same fields: a log may have thousands."""
    return decode(Environment, dict(fields))


def rows(task: Task, text: str) -> dict[str, CaseResult]:
    """The rows of an entry: exact values from its trailer, the rest (such as errors) from its table."""
    table, exact = old_entries.rows(task, text), trailer.rows(text)
    found = {case: _exact(table[case], row) if case in table else row for case, row in exact.items()}
    merged = {**table, **found}
    return {case.id: merged[case.id] for case in task.cases if case.id in merged}


def _exact(row: CaseResult, exact: CaseResult) -> CaseResult:
    if exact.status != "ok" or row.status != "ok":
        return exact
    return replace(exact, clock=row.clock, wall=row.wall, error=row.error)


def _made(journal: Journal) -> dict[Key, list[Summary]]:
    """Runs on this machine that made entries, by number and short hash."""
    made: dict[Key, list[Summary]] = {}
    for run in journal.numbered():
        made.setdefault(key_of(run), []).append(run)
    return made


def _timed_again(journal: Journal, wanted: set[str], series: Series | None) -> dict[str, Summary]:
    """By short hash, a run of that source on this machine."""
    chosen: dict[str, Summary] = {}
    for run in journal.summaries if wanted else ():
        short = run.source[: entry_text.HASH]
        if short in wanted and _is_comparable(run):
            chosen[short] = max(chosen.get(short, run), run, key=lambda item: _fitness(item, series))
    return chosen


def _is_about(item: Summary, source: str) -> bool:
    return bool(item.source) and source.startswith(item.source)


def _is_comparable(run: Summary) -> bool:
    """Not if it ran only some cases, interpreted them, or timed against the best."""
    is_other = run.environment.interpreted or run.baseline == "best"
    return run.complete and not is_other


def _fitness(run: Summary, series: Series | None) -> tuple[bool, bool]:
    """Sort key for runs of one source: in the series first, then correct ones."""
    return series is not None and series.includes(run), run.right
