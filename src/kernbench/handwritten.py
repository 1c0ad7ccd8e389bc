"""What people changed in the entries that runs here made: hypothesis and next step, as ITERATIONS.md words them now.

The journal keeps what was said with a run; the log is its reader's to edit, and a list has to say what the log says. A
log may be long: of every entry only its place is held, and its lines are read when it is shown. An entry that is not at
its place any more (the file has just been changed, and is read again soon) is told as the journal has it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from kernbench import entry, iterations
from kernbench.events import Elsewhere, Summary

UNDECODED = "surrogateescape"
"""How bytes that are no UTF-8 are carried along."""


class Handwritten:
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
        try:
            file = self._path.open("rb") if self._numbers else None
        except OSError:
            file = None
        if file is None:
            yield from runs
            return
        with file:
            for item in runs:
                yield item if isinstance(item, Elsewhere) else self._reworded(item, file)

    def _reworded(self, item: Summary, file: BinaryIO) -> Summary:
        number = item.iteration
        at = bisect_left(self._numbers, number) if number is not None else len(self._numbers)
        while at < len(self._numbers) and self._numbers[at] == number:
            file.seek(self._places[at])
            lines = _lines_of(file.read(self._sizes[at]).decode(errors="replace"), item)
            if lines is not None:
                return _with_words(item, lines)
            at += 1
        return item


def _lines_of(text: str, item: Summary) -> Sequence[str] | None:
    """Of the entry that is all of this text, where it is that of this run."""
    heading, when = iterations.HEADING.match(text), iterations.WHEN.search(text)
    if heading is None or int(heading[1]) != item.iteration or when is None or not item.source.startswith(when[1]):
        return None
    return text.splitlines()


def _with_words(item: Summary, lines: Sequence[str]) -> Summary:
    hypothesis, step = _now(lines, "hypothesis", item.hypothesis), _now(lines, "next", item.next)
    return (
        item if (hypothesis, step) == (item.hypothesis, item.next) else replace(item, hypothesis=hypothesis, next=step)
    )


def _now(lines: Sequence[str], name: str, own: str) -> str:
    """What the line says, or the run's own words where that is the same, or there is no such line any more."""
    words = entry.said(lines, name)
    return own if words is None or words == " ".join(own.split()) else words
