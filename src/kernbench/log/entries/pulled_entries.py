"""The iterations as people count them: those that runs here made, and those that ITERATIONS.md brought along.

The log travels with the kernel, its runs do not. An entry that no run here has made is a PulledEntry: what its own
lines say, whatever is run later. A run here of the same source is shown with it and never takes its place.
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
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import PulledEntry, Summary
from kernbench.log.entries import entry_text, iterations_file, old_entries, trailer
from kernbench.log.entries.edited_words import UNDECODED, EditedWords
from kernbench.log.entries.entry_list import EntryList, Key, key_of
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import Series

MINUTE = len("2026-11-14T21:03")


class PulledEntries:
    """The entries of one log that were made elsewhere; the file is read again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._signature: tuple[int, int, int] | None = None
        self._found: list[PulledEntry] = []
        self._written: Counter[Key] = Counter()
        """How many of these have a number and source: two machines may have made such an entry."""
        self._unsigned: set[int] = set()
        """Numbers that one entry alone has, which does not tell its source (any more)."""
        self._conflict: int | None = None
        self.edited = EditedWords(path)

    def current(self) -> bool:
        """Whether the file is as it was read."""
        try:
            return iterations_file.signature_of(self.path) == self._signature
        except OSError:
            return False

    def adopt(self, signature: tuple[int, int, int] | None) -> None:
        """The file has grown by an entry made here and was like this then: nothing of it has to be read for that."""
        self._signature = signature

    def of(self, journal: Journal) -> list[PulledEntry]:
        """As the file has them, less those that runs here have made."""
        try:
            signature = iterations_file.signature_of(self.path)
            if signature != self._signature:
                self._read(_made(journal))
                self._signature = signature
        except OSError:
            self._conflict = None
            return []
        made = _made(journal) if self._found else {}
        own = self._unsigned.intersection(number for number, _source in made)
        return [
            item
            for item in self._found
            if not (item.iteration in own or self._is_made(item, made.get(key_of(item), [])))
        ]

    def _read(self, made: Mapping[Key, Sequence[Summary]]) -> None:
        text = _text(self.path)
        spans = _spans(text)
        shown = _shown(text)
        self._found = [span.parsed(shown) for span in _foreign(spans, made)]
        self._written = Counter(map(key_of, self._found))
        count = Counter(span.key[0] for span in spans)
        self._unsigned = {number for number, source in self._written if not source and count[number] == 1}
        self._conflict = iterations_file.conflict(text)
        self.edited.locate(text, [(span.key[0], span.start, span.end) for span in spans])

    def _is_made(self, item: PulledEntry, runs: Sequence[Summary]) -> bool:
        """By runs here of this number and source; where the file has more of these, by the run that its trailer names,
        or those of its time."""
        if len(runs) >= self._written[key_of(item)]:
            return bool(runs)
        return any(run.run == item.run if item.run else run.at[:MINUTE] == item.at[:MINUTE] for run in runs)

    def problem(self, journal: Journal) -> str:
        """What is wrong with the file, in a sentence; empty where nothing is."""
        self.of(journal)
        if self._conflict is None:
            return ""
        place = f"{self.path.name}:{self._conflict}"
        return f"{place}: a merge was left unresolved; entries around its markers may carry each other's lines"

    def number_of(self, journal: Journal, source: str) -> int | None:
        """Number of the first entry about this very source, whichever machine made it."""
        written = [item.iteration for item in self.of(journal) if _is_about(item, source)]
        numbers = [number for number in (*written, journal.iteration_of(source)) if number is not None]
        return min(numbers, default=None)

    def iterations(
        self,
        journal: Journal,
        series: Series | None = None,
        best: Callable[[], Key | None] = lambda: None,
    ) -> EntryList:
        """By number: what was made here, and what is only written down.

        Beside the latter stands the first whole run of its source here that came out right, where there is one of the
        series that is asked for.
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
    """Behind the number of its heading."""
    end: int

    def parsed(self, text: str) -> PulledEntry:
        return parse(self.key[0], text[self.begin : self.end].replace("\r\n", "\n"), self.key[1])


def read(path: Path) -> list[PulledEntry]:
    """The entries of the file, whoever made them."""
    return read_text(_text(path))


def dropped(journal: Journal) -> list[PulledEntry]:
    """The pulled entries that `kernbench drop` took out of the file."""
    entries = [item for entry in journal.dropped if not entry.run for item in read_text(entry.text)]
    return [replace(item, dropped=True) for item in entries]


def read_text(text: str) -> list[PulledEntry]:
    text = _shown(text)
    return [span.parsed(text) for span in _spans(text)]


def _text(path: Path) -> str:
    """Every byte of it, whatever it stands for: places in the text are places in the file."""
    return path.read_bytes().decode("utf-8", UNDECODED)


def _shown(text: str) -> str:
    """The same with a sign for each byte that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\udc80-\udcff]", "\N{REPLACEMENT CHARACTER}", text)
    return text


def _spans(text: str) -> list[Span]:
    headings = list(iterations_file.headings(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    spans: list[Span] = []
    for heading, end in zip(headings, ends, strict=False):  # a file without headings has an end all the same
        when = iterations_file.WHEN.search(text, heading.end(), end)
        spans.append(Span((int(heading[1]), when[1] if when else ""), heading.start(), heading.end(), end))
    return spans


def _foreign(spans: Sequence[Span], made: Mapping[Key, Sequence[Summary]]) -> list[Span]:
    """Those that are not known to be made here: a long log of one's own costs little.

    Where the file has more entries of a number and source than runs here have made, all of them are among these.
    """
    count = Counter(span.key for span in spans)
    own = {key for key, runs in made.items() if len(runs) >= count[key]}
    return [span for span in spans if span.key not in own]


def parse(number: int, text: str, source: str) -> PulledEntry:
    """An entry; `text` begins behind the number of its heading. Words are read from the text, values from the trailer,
    unless that is about another source or time than the entry."""
    fields, data = old_entries.fields(number, text, source), trailer.read(text)
    named = (str(data.get("source", "")), str(data.get("at", ""))) if data is not None else ("", "")
    is_own = named[0].startswith(source) and named[1].startswith(fields["at"][:MINUTE])
    told = trailer.applied(fields, data) if data is not None and is_own else fields
    return decode(PulledEntry, {**told, "environment": _environment(*told["environment"].items())})


@functools.lru_cache(maxsize=64)
def _environment(*fields: tuple[str, Any]) -> Environment:
    """One for all entries that have it: a log may have thousands."""
    return decode(Environment, dict(fields))


def rows(task: Task, text: str) -> dict[str, CaseResult]:
    """The rows of an entry: exact from its trailer, what only its table knows (such as errors) from there."""
    table, exact = old_entries.rows(task, text), trailer.rows(text)
    found = {case: _exact(table[case], row) if case in table else row for case, row in exact.items()}
    merged = {**table, **found}
    return {case.id: merged[case.id] for case in task.cases if case.id in merged}


def _exact(row: CaseResult, exact: CaseResult) -> CaseResult:
    if exact.status != "ok" or row.status != "ok":
        return exact
    return replace(exact, clock=row.clock, wall=row.wall, error=row.error)


def _made(journal: Journal) -> dict[Key, list[Summary]]:
    """The runs here that made entries, by number and short hash."""
    made: dict[Key, list[Summary]] = {}
    for run in journal.numbered():
        made.setdefault(key_of(run), []).append(run)
    return made


def _timed_again(journal: Journal, wanted: set[str], series: Series | None) -> dict[str, Summary]:
    """By short hash, a run here of that source."""
    chosen: dict[str, Summary] = {}
    for run in journal.summaries if wanted else ():
        short = run.source[: entry_text.HASH]
        if short in wanted and _is_comparable(run):
            chosen[short] = max(chosen.get(short, run), run, key=lambda item: _fitness(item, series))
    return chosen


def _is_about(item: Summary, source: str) -> bool:
    return bool(item.source) and source.startswith(item.source)


def _is_comparable(run: Summary) -> bool:
    """A part of the cases, an interpreter, or the best as the opponent: such runs time something else."""
    is_other = run.environment.interpreted or run.baseline == "best"
    return run.complete and not is_other


def _fitness(run: Summary, series: Series | None) -> tuple[bool, bool]:
    """Of several runs of one source the fittest is taken, and of equals the first."""
    return series is not None and series.includes(run), run.right
