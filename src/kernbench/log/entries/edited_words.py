"""What people changed in the entries that runs here made: hypothesis and next step, as ITERATIONS.md words them now.

The journal keeps what was said with a run; the log is its reader's to edit, and lists and exports have to say what the
log says. A log may be long: of every entry only its place is held, and its lines are read when it is shown. One that is
not at its place any more (the file has just been changed, and is read again soon) is told as the journal has it.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from kernbench.events import Summary
from kernbench.log.entries import entry_text, iterations_file

UNDECODED = "surrogateescape"
"""How bytes that are no UTF-8 are carried along."""


class EditedWords:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers, self._places, self._sizes = array("q"), array("q"), array("q")

    def locate(self, text: str, entries: Iterable[tuple[int, int, int]]) -> None:
        """Number, start and end in the text of every entry, in the order of the file."""
        reached, place, found = 0, 0, list[tuple[int, int, int]]()
        for number, start, end in entries:
            size = len(text[start:end].encode("utf-8", UNDECODED))
            place += len(text[reached:start].encode("utf-8", UNDECODED))
            found.append((number, place, size))
            reached, place = end, place + size
        found.sort()
        self._numbers, self._places, self._sizes = (array("q", [item[at] for item in found]) for at in range(3))

    def applied(self, runs: Iterable[Summary]) -> Iterator[Summary]:
        """The runs, each with the words that its entry has now."""
        with self._opened() as file:
            for item in runs:
                is_own = item.local_run is item
                yield _with_words(item, self._text_of(item, file).split("\n")) if is_own else item

    def texts(self, items: Iterable[Summary]) -> Iterator[str]:
        """The entry of each as it is written now, wherever it was made; empty where the file has none."""
        with self._opened() as file:
            for item in items:
                yield self._text_of(item, file)

    def _opened(self) -> contextlib.AbstractContextManager[BinaryIO | None]:
        try:
            return self._path.open("rb")
        except OSError:
            return contextlib.nullcontext()

    def _text_of(self, item: Summary, file: BinaryIO | None) -> str:
        """Of several entries with one number, the one that `show` prints and that words are written into."""
        number, found = item.iteration, ""
        if file is None or number is None:
            return ""
        places = range(bisect_left(self._numbers, number), bisect_right(self._numbers, number))
        for at in places:
            file.seek(self._places[at])
            text = file.read(self._sizes[at]).decode(errors="replace").replace("\r\n", "\n")
            heading = iterations_file.HEADING.match(text)
            found += text if heading is not None and int(heading[1]) == number else ""
        if len(places) == 1 and item.source and f" · source {item.source[: entry_text.HASH]}" in found:
            return found  # as nearly always
        span = iterations_file.span_of(found, number, item.source, item.at)
        return found[slice(*span)] if span else ""


def _with_words(item: Summary, lines: Sequence[str]) -> Summary:
    hypothesis, step = _now(lines, "hypothesis", item.hypothesis), _now(lines, "next", item.next)
    return (
        item if (hypothesis, step) == (item.hypothesis, item.next) else replace(item, hypothesis=hypothesis, next=step)
    )


def _now(lines: Sequence[str], name: str, own: str) -> str:
    """What the line says, or the run's own words where that is the same, or there is no such line any more."""
    words = entry_text.said(lines, name)
    return own if words is None or words == " ".join(own.split()) else words
