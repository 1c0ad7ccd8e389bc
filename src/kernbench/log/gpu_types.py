"""One task on several GPU types: the rows of the same source, and the best, by type.

The rule: once right, whole runs or entries over the task's own baseline are from more than one GPU type, `log`, `show`
and the exports have a column for each. Nothing is compared across types: a column has speedups over the baseline on
that GPU, and its own best.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.shared import format as fmt
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import PulledEntry, Summary
from kernbench.log import best as best_source
from kernbench.log.entries import entry_text, pulled_entries
from kernbench.log.entries.entry_text import HASH
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs.journal import Journal

L2 = "cold"
"""The state of the L2 in which best is decided."""


@dataclass(frozen=True)
class GpuTypes:
    task: Task
    journal: Journal
    entries: PulledEntries

    @functools.cached_property
    def _timed(self) -> list[Summary]:
        """Every right, whole run and pulled entry over the task's own baseline on a GPU: pulled ones first, then runs,
        each in its order."""
        old = self.journal.old_hashes(self.task)
        hashes = {self.task.hash, *old}
        written = [item for item in self.entries.of(self.journal) if best_source.is_of(self.task, item, L2, old)]
        runs = (run for run in self.journal.summaries if run.task_hash in hashes)
        made = [run for run in runs if (run.baseline, run.environment.l2) == (self.task.baseline, L2)]
        return [item for item in (*written, *made) if _counts(item)]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the GPU types, as they came; empty unless there are several."""
        found = tuple(dict.fromkeys(item.environment.device_name for item in self._timed))
        return found if len(found) > 1 else ()

    @functools.cached_property
    def by_source(self) -> dict[tuple[str, str], Summary]:
        """The newest run or entry of each source on each type."""
        return {(_short(item), item.environment.device_name): item for item in self._timed}

    def of(self, entry: Summary) -> dict[str, Summary]:
        """What the entry's source came to on each GPU type: the entry itself on its own, elsewhere its newest run."""
        found = {name: item for name in self.names if (item := self.by_source.get((_short(entry), name)))}
        own = entry.environment.device_name
        return {**found, own: entry} if own in found and _counts(entry) else found

    @functools.cached_property
    def bests(self) -> dict[str, Summary]:
        """The best on each GPU type that has one."""
        found = {}
        for name in self.names:
            about = Environment(device="cuda", device_name=name)
            best = best_source.find(self.task, self.journal, self.entries, about, L2).summary
            if best is not None and best.environment.device_name == name:
                found[name] = best
        return found

    def is_best(self, entry: Summary, name: str) -> bool:
        return name in self.bests and bool(entry.source) and _short(self.bests[name]) == _short(entry)

    def cells(self, entry: Summary) -> list[str]:
        """A cell for each type: the geomean, and `best` for the best on that type."""
        found = self.of(entry)
        said = {name: entry_text.speed(item) for name, item in found.items()}
        said[entry.environment.device_name] = entry_text.speed(entry)  # whatever it is over
        return [
            f"{said[name]} best" if name in said and self.is_best(entry, name) else said.get(name, fmt.DASH)
            for name in self.names
        ]

    def rows(self, item: Summary) -> Mapping[str, CaseResult]:
        if isinstance(item, PulledEntry):
            return pulled_entries.rows(self.task, self.entries.edited.text_of(item))
        return self.journal.cases_of(item.run)

    def table(self, entry: Summary) -> list[list[str]]:
        """The entry's source on every type side by side: titles, a line per timed case, the geomeans. Empty unless it
        was timed on several."""
        found = self.of(entry)
        if len(found) < 2:
            return []
        rows = {name: self.rows(item) for name, item in found.items()}
        titles = [title for name in found for title in (f"{short(name)} us", short(name))]
        lines = [
            [case.label, *(cell for name in found for cell in _cells(rows[name].get(case.id)))]
            for case in self.task.timed
            if any(case.id in rows[name] for name in found)
        ]
        means = [cell for name, item in found.items() for cell in ("", _mean(item, self.is_best(entry, name)))]
        return [["case", *titles], *lines, ["geomean", *means]]

    def sentence(self) -> str:
        """`Best by GPU type: H200 #5 1.42x, B200 none.`"""
        bests = [f"{short(name)} {self._named(name)}" for name in self.names]
        return f"Best by GPU type: {', '.join(bests)}." if bests else ""

    def _named(self, name: str) -> str:
        best = self.bests.get(name)
        if best is None:
            return "none"
        return f"{f'#{best.iteration}' if best.iteration else best.source[:8]} {fmt.times(best.geomean)}"

    def data(self, entry: Summary) -> dict[str, Any]:
        """The entry's source on each type, for programs."""
        return {
            name: {
                "run": item.run,
                "iteration": item.iteration,
                "geomean": item.geomean,
                "low": item.low,
                "high": item.high,
                "verdict": item.verdict,
                "best": self.is_best(entry, name),
            }
            for name, item in self.of(entry).items()
        }


def short(name: str) -> str:
    """`NVIDIA H200` as a column's title."""
    return name.removeprefix("NVIDIA ")


def _short(item: Summary) -> str:
    return item.source[:HASH]


def _counts(item: Summary) -> bool:
    about = item.environment
    is_gpu = bool(about.device_name and about.l2) and not about.device.startswith("cpu")
    return is_gpu and item.right and item.complete and item.geomean is not None and not about.interpreted


def _cells(row: CaseResult | None) -> list[str]:
    return [fmt.microseconds(row.solution_us), fmt.speedup(row.ratio)] if row is not None else [fmt.DASH, fmt.DASH]


def _mean(item: Summary, is_best: bool) -> str:
    return f"{entry_text.speed(item)}{' best' if is_best else ''}"
