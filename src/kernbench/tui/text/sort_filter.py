"""The filter and sort order of the results pane."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

from kernbench import render
from kernbench.tui.state.board import Row

SORTS = ("task", "speedup", "time", "roof", "name")
"""In the task's order; slowest against the baseline first; longest first; farthest below the roof first; by name."""
ABSENT = float("inf")
"""Replaces a missing number: last in every order."""
SORT_WORDS = {
    "task": "task order",
    "speedup": "lowest speedup first",
    "time": "longest time first",
    "roof": "lowest % roof first",
    "name": "by name",
}


def matches(row: Row, words: Sequence[str]) -> bool:
    """Every word is in the row's id, label, models, verdict, status or findings; `-word` must not be.

    A word with `*`, `?` or `[` is also a pattern for part of the id or label.
    """
    text = _searched(row)
    names = [row.case.id.casefold(), row.case.label.casefold()]
    return all(
        not _is_in(word[1:], text, names) if word[0] == "-" and word[1:] else _is_in(word, text, names)
        for word in words
    )


def _is_in(word: str, text: str, names: Sequence[str]) -> bool:
    """Literally first: `m[bf16]` must find the label `m[bf16]`."""
    if word in text:
        return True
    is_glob = any(sign in word for sign in "*?[")
    return is_glob and any(fnmatch.fnmatchcase(name, f"*{word}*") for name in names)


def _searched(row: Row) -> str:
    case, result = row.case, row.result
    parts = [case.id, case.label, case.kind, *case.models, str(case.axes.get("dtype", ""))]
    if result is not None:
        parts += [render.STATUS_WORDS[result.status], result.verdict or "", "failed" if result.failed else ""]
        parts += [finding.name for finding in result.findings]
    return " ".join(parts).casefold()


def sorts(rows: Sequence[Row]) -> list[str]:
    """The useful orders: leaves out an order by a number that no row has."""
    return [sort for sort in SORTS if sort not in _KEYS or any(_KEYS[sort](row) != ABSENT for row in rows)]


def arrange(rows: Sequence[Row], sort: str, text: str) -> list[Row]:
    words = text.casefold().split()
    kept = [row for row in rows if matches(row, words)] if words else list(rows)
    key = _KEYS.get(sort)
    # Stable, so that rows without a number keep the task's order after the others.
    return sorted(kept, key=key) if key else kept


def _speedup(row: Row) -> float:
    return row.result.speedup if row.result and row.result.speedup is not None else ABSENT


def _longest(row: Row) -> float:
    return -row.result.solution_us if row.result and row.result.solution_us is not None else ABSENT


def _roof(row: Row) -> float:
    return row.result.roofline if row.result and row.result.roofline is not None else ABSENT


def _name(row: Row) -> str:
    return row.case.label.casefold()


_KEYS: dict[str, Callable[[Row], Any]] = {
    "speedup": _speedup,
    "time": _longest,
    "roof": _roof,
    "name": _name,
}
