"""The text of each entry as ITERATIONS.md has it now, and the hypothesis and next step that people edited there.

The journal keeps the words given with a run. People may edit the log, so lists and exports show the log's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kernbench.events import Summary
from kernbench.log.entries import entry_text, iterations_file


class EditedWords:
    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}

    def read(self, entries: Iterable[tuple[int, str]]) -> None:
        """Number and text of every entry, in the order of the file."""
        texts: dict[int, list[str]] = {}
        for number, text in entries:
            texts.setdefault(number, []).append(text)
        self._texts = texts  # at once: another thread may be reading it

    def applied(self, runs: Iterable[Summary]) -> Iterator[Summary]:
        """The runs, each with the words that its entry has now."""
        if not self._texts:
            yield from runs
            return
        for item in runs:
            yield _with_words(item, self.text_of(item).split("\n")) if item.local_run is item else item

    def text_of(self, item: Summary) -> str:
        """The entry as written now, on whichever machine; empty if the file has none. If several share the number, it
        is the one that `show` prints and that new words go into."""
        found = self._texts.get(item.iteration or 0, [])
        if len(found) == 1 and item.source and f" · source {item.source[: entry_text.HASH]}" in found[0]:
            return found[0]  # almost always
        text = "".join(found)
        span = iterations_file.span_of(text, item.iteration or 0, item.source, item.at)
        return text[slice(*span)] if span else ""


def _with_words(item: Summary, lines: Sequence[str]) -> Summary:
    hypothesis, step = _now(lines, "hypothesis", item.hypothesis), _now(lines, "next", item.next)
    return (
        item if (hypothesis, step) == (item.hypothesis, item.next) else replace(item, hypothesis=hypothesis, next=step)
    )


def _now(lines: Sequence[str], name: str, own: str) -> str:
    """The line's words; the run's words if they only differ in spacing, or if the line is gone."""
    words = entry_text.said(lines, name)
    return own if words is None or words == " ".join(own.split()) else words
