"""Every finished run, oldest first: its record stays in runs.jsonl and is read from there when somebody asks.

What is asked at every run is in the briefs. Of the records only those that were asked for last are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, overload

from harness.shared.lines import decode
from harness.shared.run_request import Environment
from kernbench.events import Summary
from kernbench.log.runs import legacy
from kernbench.log.runs.run_table import RunTable
from kernbench.log.runs.runs_file import PARSED_AT_ONCE, RunsFile, parse, parse_all

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
KEPT_RECORDS = 256
"""What the plot and a screenful of iterations ask for at every run, and some more."""
KEPT_ENVIRONMENTS = 64
WORDS = ("hypothesis", "next", "hypothesis_by", "hypothesis_at", "move")
GLANCED = ("run", "source", "at", "right", "geomean", "vs_best", "best", "best_geomean", "stalled", "counts",
           "iteration", "repeats", "complete", "baseline", "task_hash", "code")  # fmt: skip
LOST = "its line in runs.jsonl cannot be read"


class RunRecords(Sequence[Summary]):
    def __init__(self, file: RunsFile) -> None:
        self.table = RunTable()
        self._file = file
        self._reworded: dict[int, list[int]] = {}
        """Where the lines are that changed the words of a run: as many as somebody typed."""
        self._kept: dict[int, Summary] = {}
        self._environments: dict[str, Environment] = {}

    def add(self, summary: Summary, place: int, begin: int) -> None:
        """A run that has just ended, and will be asked for."""
        self.table.add(summary, place, begin)
        self._keep(len(self) - 1, summary)

    def reword(self, index: int, place: int) -> None:
        """The line at `place` says what the run is now said to have been about."""
        self._reworded.setdefault(index, []).append(place)
        self._kept.pop(index, None)

    def add_from_line(self, data: dict[str, Any], place: int, begin: int) -> Summary:
        """A run of which the `finished` line was read: as much of its record as its brief is made of."""
        known = {name: data[name] for name in GLANCED if name in data}
        found = decode(Summary, {**known, "environment": self._environment(data)})
        self.table.add(found, place, begin)
        return found

    def _environment(self, data: dict[str, Any]) -> Environment:
        """Machines change rarely, so equal environments are one object."""
        about = data.get("environment") or {}
        key = str(about)  # a later version may keep lists in it
        if key not in self._environments:
            if len(self._environments) >= KEPT_ENVIRONMENTS:
                self._environments.clear()
            self._environments[key] = legacy.decode_environment(about)
        return self._environments[key]

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Summary: ...

    @overload
    def __getitem__(self, index: slice) -> list[Summary]: ...

    def __getitem__(self, index: int | slice) -> Summary | list[Summary]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        found = self._kept.pop(place, None)
        if found is None:
            line = next(self._file.lines_at([self.table.places[place]]))
            found = self._decode(place, parse(line) or {})
        return self._keep(place, found)

    def __iter__(self) -> Iterator[Summary]:
        return self.records(range(len(self)))

    def records(self, indices: Sequence[int]) -> Iterator[Summary]:
        """Those at these places, in one pass over the file; what is read in passing is not kept."""
        lines = self._file.lines_at([self.table.places[index] for index in indices])
        for begin in range(0, len(indices), PARSED_AT_ONCE):
            batch = parse_all(list(islice(lines, PARSED_AT_ONCE)))
            for index, data in zip(indices[begin:], batch, strict=False):
                yield self._kept.get(index) or self._decode(index, data)

    def _keep(self, index: int, summary: Summary) -> Summary:
        """As the one that was asked for last; the one that nobody asked for the longest makes room."""
        self._kept[index] = summary
        if len(self._kept) > KEPT_RECORDS:
            del self._kept[next(iter(self._kept))]
        return summary

    def _decode(self, index: int, data: dict[str, Any]) -> Summary:
        try:
            found = decode(Summary, {**legacy.with_codes(data), "environment": self._environment(data)})
            for changed in self._file.lines_at(self._reworded[index]) if index in self._reworded else ():
                found = replace(found, **said(parse(changed) or {}))  # type: ignore[arg-type]
        except UNREADABLE:
            return self._lost(index)
        return found if self.table.is_of(index, found.run) else self._lost(index)

    def _lost(self, index: int) -> Summary:
        """Somebody took the file away or wrote into it while it was open: what is known without it."""
        brief = self.table[index]
        series, device, interpreted = brief.about
        return Summary(
            run="",
            source=brief.source,
            at="",
            right=brief.right,
            geomean=brief.geomean,
            best=brief.best,
            stalled=brief.stalled,
            iteration=brief.iteration,
            complete=brief.complete,
            hypothesis=LOST,
            baseline=series.baseline,
            task_hash=series.task_hash,
            environment=Environment(
                device=device,
                device_name=series.device_name,
                interpreted=interpreted,
                condition=series.l2,
                l2=legacy.l2_of(series.l2),
            ),
        )


def said(data: dict[str, Any]) -> dict[str, str]:
    """The words that a `words` line changes."""
    return {name: str(data[name]) for name in WORDS if data.get(name) is not None}
