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

from kernbench import iterations
from kernbench.events import Elsewhere, Summary

MOST_BYTES = 4096
"""Of an entry: its words stand before its table."""


class Handwritten:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers, self._places = array("q"), array("q")

    def locate(self, text: str, headings: Iterable[tuple[int, int]]) -> None:
        """Number and place in the text of every heading that matters, in the order of the file."""
        self._numbers, self._places = array("q"), array("q")
        reached, place, found = 0, 0, list[tuple[int, int]]()
        for number, start in headings:
            place += len(text[reached:start].encode())
            reached = start
            found.append((number, place))
        for number, place in sorted(found):
            self._numbers.append(number)
            self._places.append(place)

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
            lines = _lines_of(file.read(MOST_BYTES).decode(errors="replace"), item)
            if lines is not None:
                return _with_words(item, lines)
            at += 1
        return item


def _lines_of(text: str, item: Summary) -> Sequence[str] | None:
    """Of the entry that begins here, where it is that of this run."""
    heading = iterations.HEADING.match(text)
    if heading is None or int(heading[1]) != item.iteration:
        return None
    following = iterations.HEADING.search(text, heading.end())
    when = iterations.WHEN.search(text, heading.end(), following.start() if following else len(text))
    if when is None or not item.source.startswith(when[1]):
        return None
    return text[: following.start() if following else len(text)].splitlines()


def _with_words(item: Summary, lines: Sequence[str]) -> Summary:
    hypothesis, step = _said(lines, "hypothesis", item.hypothesis), _said(lines, "next", item.next)
    return (
        item if (hypothesis, step) == (item.hypothesis, item.next) else replace(item, hypothesis=hypothesis, next=step)
    )


def _said(lines: Sequence[str], name: str, own: str) -> str:
    """What the line says, or the run's own words where that is the same, or there is no such line any more."""
    mark = f"- {name}:"
    found = next((line.removeprefix(mark).strip() for line in lines if line.startswith(mark)), None)
    words = "" if found == "-" else found
    return own if words is None or words == " ".join(own.split()) else words
