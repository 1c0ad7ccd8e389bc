"""Entries in the order of their numbers, each with the words that ITERATIONS.md has now."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from kernbench.events import PulledEntry, Summary
from kernbench.log.entries.entry_text import HASH
from kernbench.log.runs.series import Series

Key = tuple[int, str]
"""Number and short hash: identifies an entry even if two share a number."""


def key_of(entry: Summary) -> Key:
    return entry.iteration or 0, entry.source[:HASH]


class EntryList(Sequence[Summary]):
    def __init__(
        self,
        made: Sequence[Summary],
        written: Sequence[PulledEntry],
        best: Callable[[], Key | None] = lambda: None,
        reworded: Callable[[Iterable[Summary]], Iterable[Summary]] = lambda runs: runs,
        series: Series | None = None,
    ) -> None:
        """`made` are the runs that made entries here, `written` the pulled entries.
        `best` is asked once, on first use; `reworded` gives runs the words that their entries have."""
        self.written, self._best, self._reworded = written, best, reworded
        self.series = series
        """The present one, if known."""
        self._entries = sorted([*made, *written], key=_number)  # stable: entries with one number keep their order

    def numbers(self) -> list[int]:
        return [_number(entry) for entry in self._entries]

    def doubled(self) -> list[int]:
        """Numbers that more than one entry has, as after a merge of two logs."""
        return [number for number, count in Counter(self.numbers()).items() if count > 1]

    @functools.cached_property
    def best_now(self) -> Key | None:
        return self._best()

    def is_best_now(self, entry: Summary) -> bool:
        return self.best_now is not None and key_of(entry) == self.best_now

    def with_number(self, number: int) -> list[Summary]:
        """More than one if two machines used it."""
        first, end = (find(self._entries, number, key=_number) for find in (bisect_left, bisect_right))
        return self[first:end]

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Summary: ...

    @overload
    def __getitem__(self, index: slice) -> list[Summary]: ...

    def __getitem__(self, index: int | slice) -> Summary | list[Summary]:
        if isinstance(index, slice):
            return list(self._reworded(self._entries[index]))
        return next(iter(self._reworded([self._entries[index]])))

    def __iter__(self) -> Iterator[Summary]:
        yield from self._reworded(self._entries)


def _number(entry: Summary) -> int:
    return entry.iteration or 0
