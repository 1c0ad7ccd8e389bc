"""Runs and entries in an order of their own: a list of places, from which each record is read when it is asked for."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import overload

from kernbench.events import Elsewhere, Summary
from kernbench.pastruns import PastRuns


class Listing(Sequence[Summary]):
    def __init__(
        self,
        runs: PastRuns,
        places: Sequence[int],
        retimed: Mapping[int, Elsewhere],
        written: Sequence[Elsewhere] = (),
    ) -> None:
        """A place is that of a run, or below zero (`~place`) that of what is only written down.

        A run that timed an entry again is that entry.
        """
        self._runs, self._places, self._retimed, self.written = runs, places, retimed, written

    def by_number(self) -> Listing:
        """Those of one number (two machines took it) stay in their order."""
        places = array("q", sorted(self._places, key=lambda place: self._number(place) or 0))
        return Listing(self._runs, places, self._retimed, self.written)

    def numbers(self) -> list[int]:
        return [self._number(place) or 0 for place in self._places]

    def with_number(self, number: int) -> Summary | None:
        """The last that has it; the listing is by number."""
        found = bisect_right(self._places, number, key=lambda place: self._number(place) or 0) - 1
        return self[found] if found >= 0 and self._number(self._places[found]) == number else None

    def starting_with(self, digits: str) -> dict[str, Summary]:
        """By source, what has a source that begins so."""
        newest = {source: at for at, source in enumerate(self._sources()) if source.startswith(digits)}
        return {source: self[at] for source, at in newest.items()}

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Summary: ...

    @overload
    def __getitem__(self, index: slice) -> list[Summary]: ...

    def __getitem__(self, index: int | slice) -> Summary | list[Summary]:
        if isinstance(index, slice):
            return [self._at(place) for place in self._places[index]]
        return self._at(self._places[index])

    def __iter__(self) -> Iterator[Summary]:
        """All in one pass over the file."""
        runs = self._runs.records([place for place in self._places if place >= 0])
        for place in self._places:
            yield self.written[~place] if place < 0 else self._named(place, next(runs))

    def _at(self, place: int) -> Summary:
        return self.written[~place] if place < 0 else self._named(place, self._runs[place])

    def _named(self, place: int, run: Summary) -> Summary:
        item = self._retimed.get(place)
        if item is None:
            return run
        return replace(run, iteration=item.iteration, repeats=None, hypothesis=item.hypothesis, next=item.next)

    def _number(self, place: int) -> int | None:
        if place < 0:
            return self.written[~place].iteration
        entry = self._retimed.get(place)
        return entry.iteration if entry else self._runs.briefs.iteration(place)

    def _sources(self) -> Iterator[str]:
        table = self._runs.briefs
        return (self.written[~place].source if place < 0 else table.source(place) for place in self._places)
