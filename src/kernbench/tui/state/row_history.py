"""What became of each case in the newest iterations: for the heat map and a row's page.

The rows of earlier runs are in the log; each is read once, in a thread, after the screen has opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from harness.shared.results import CaseResult
from kernbench.events import Summary

MOST = 160
"""Iterations whose rows are kept: more than a screen has cells for."""


class Outcome(NamedTuple):
    status: str
    speedup: float | None = None
    verdict: str | None = None


NOT_RUN = Outcome("")


class RowHistory:
    def __init__(self) -> None:
        self._rows: dict[object, dict[str, Outcome]] = {}
        self.entries: Sequence[Summary] = ()
        """Comparable iterations, oldest first."""

    def follow(self, entries: Sequence[Summary]) -> list[Summary]:
        """Take the iterations that count now; returns those whose rows are not known, newest first."""
        self.entries = entries[-MOST:]
        keys = {_key(entry) for entry in self.entries}
        self._rows = {key: rows for key, rows in self._rows.items() if key in keys}
        return [entry for entry in reversed(self.entries) if _key(entry) not in self._rows]

    def take(self, entry: Summary, results: Iterable[CaseResult]) -> None:
        self._rows[_key(entry)] = {row.id: Outcome(row.status, row.speedup, row.verdict) for row in results}

    def rows(self, entry: Summary) -> Mapping[str, Outcome]:
        return self._rows.get(_key(entry), {})

    def of_case(self, case_id: str) -> list[tuple[Summary, Outcome]]:
        """Its iterations, oldest first, as far as their rows are known."""
        known = [(entry, self._rows[_key(entry)]) for entry in self.entries if _key(entry) in self._rows]
        return [(entry, rows[case_id]) for entry, rows in known if case_id in rows]


def _key(entry: Summary) -> object:
    """Its run; an entry from another machine has none."""
    return entry.run or (entry.iteration, entry.source, entry.at)
