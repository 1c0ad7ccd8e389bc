"""Entries in the order of their numbers: a list of places, from which each record is read when it is asked for."""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import overload

from kernbench.events import PulledEntry, Summary
from kernbench.log.entries.entry_text import HASH
from kernbench.log.runs.run_records import RunRecords
from kernbench.log.runs.series import Series

Key = tuple[int, str]
"""Number and short hash: what names an entry, also where two have one number."""


def key_of(entry: Summary) -> Key:
    return entry.iteration or 0, entry.source[:HASH]


class EntryList(Sequence[Summary]):
    def __init__(
        self,
        runs: RunRecords,
        made: Sequence[int],
        written: Sequence[PulledEntry],
        again: Mapping[int, int],
        best: Callable[[], Key | None] = lambda: None,
        reworded: Callable[[Iterable[Summary]], Iterable[Summary]] = lambda runs: runs,
        series: Series | None = None,
    ) -> None:
        """`made` are the places of the runs that made entries here; `again` has, by the place of what is only written
        down, the place of a run here of the same source: it stands beside the entry and never in its stead.
        `best` is asked once, when somebody wants to know; `reworded` gives runs the words that their entries have."""
        self._runs, self.written, self._again, self._best = runs, written, again, best
        self._reworded = reworded
        self.series = series
        """The present one, where it is known."""
        places = [*made, *(~place for place in range(len(written)))]
        self._places = array("q", sorted(places, key=self._number))  # those of one number stay in their order

    def numbers(self) -> list[int]:
        return [self._number(place) for place in self._places]

    def doubled(self) -> list[int]:
        """Numbers that more than one entry has, as after a merge of two logs."""
        return [number for number, count in Counter(self.numbers()).items() if count > 1]

    @functools.cached_property
    def best_now(self) -> Key | None:
        return self._best()

    def is_best_now(self, entry: Summary) -> bool:
        return self.best_now is not None and key_of(entry) == self.best_now

    def with_number(self, number: int) -> list[Summary]:
        """More than one where two machines took it."""
        first, end = (find(self._places, number, key=self._number) for find in (bisect_left, bisect_right))
        return self[first:end]

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Summary: ...

    @overload
    def __getitem__(self, index: slice) -> list[Summary]: ...

    def __getitem__(self, index: int | slice) -> Summary | list[Summary]:
        if isinstance(index, slice):
            return list(self._reworded(self._at(place) for place in self._places[index]))
        return next(iter(self._reworded([self._at(self._places[index])])))

    def __iter__(self) -> Iterator[Summary]:
        """All in one pass over the file."""
        runs = self._runs.records([place for place in self._places if place >= 0])
        found = (next(runs) if place >= 0 else self._at(place) for place in self._places)
        yield from self._reworded(found)

    def _at(self, place: int) -> Summary:
        """A place below zero is that of what is only written down."""
        if place >= 0:
            return self._runs[place]
        item, again = self.written[~place], self._again.get(~place)
        return item if again is None else replace(item, again=self._runs[again])

    def _number(self, place: int) -> int:
        found = self._runs.table.iteration(place) if place >= 0 else self.written[~place].iteration
        return found or 0
