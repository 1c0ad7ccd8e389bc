"""What every format is made from: the task, its log, the present series and one frame of all runs."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.records.errors import UserError
from harness.records.results import CaseResult
from harness.records.task import Case, Task
from kernbench import compare, iterations, trajectory
from kernbench.elsewhere import by_number
from kernbench.events import Summary
from kernbench.journal import Journal
from kernbench.profiling import evidence

if TYPE_CHECKING:
    import pandas


OPENED = "the source as it was opened"


class ExportError(UserError):
    """The log cannot be exported; one sentence."""


@dataclass(frozen=True)
class Collected:
    task: Task
    journal: Journal

    @functools.cached_property
    def frame(self) -> pandas.DataFrame:
        from kernbench.frame import frame

        return frame(self.task, self.journal, runs=self.runs)

    @functools.cached_property
    def present(self) -> compare.Series:
        """That of the newest iteration; where there are only plain runs, of the newest whole one."""
        briefs = self.journal.briefs
        whole = [run for run in briefs.all() if run.complete and run.about.series.baseline != "best"]
        newest = (briefs.numbered() or whole or briefs.all())[-1]
        return newest.about.series

    @functools.cached_property
    def runs(self) -> list[Summary]:
        """Every finished run, oldest first; one that re-timed an entry made elsewhere has its number."""
        return list(trajectory.entries_of(self.task).runs(self.journal, self.present))

    @functools.cached_property
    def entries(self) -> list[Summary]:
        """The iterations that were run here; where there are only plain runs, those."""
        return by_number(run for run in self.runs if run.iteration is not None) or self.runs

    @functools.cached_property
    def series(self) -> list[Summary]:
        """The entries that may be compared with the newest one; where none is in its series, the plain runs."""
        return compare.series_of(self.entries, self.present) or compare.series_of(self.runs, self.present)

    @functools.cached_property
    def best(self) -> Summary | None:
        return self.best_of(self.present)

    def best_of(self, series: compare.Series) -> Summary | None:
        """The best of all whole runs, as the entry that became best with its source where one did."""
        runs = [run for run in compare.series_of(self.runs, series) if run.complete]
        best = compare.best_of(runs)
        if best is None or best.iteration is not None:
            return best
        told = [run for run in runs if run.source == best.source and run.iteration is not None]
        return next((run for run in reversed(told) if run.best), self._numbered(best))

    def first_of(self, series: compare.Series) -> Summary | None:
        """What the series began with: the source as it was opened."""
        first = next((run for run in compare.series_of(self.runs, series) if run.complete), None)
        return first and self._numbered(first)

    def _numbered(self, run: Summary) -> Summary:
        number = run.iteration or trajectory.entries_of(self.task).number_of(self.journal, run.source)
        return replace(run, iteration=number)

    def words_for(self, run: Summary) -> str:
        """`#12`; the source that all began with may have no number."""
        first = self.first_of(compare.Series.of(run)) if run.iteration is None else None
        return OPENED if first is not None and first.source == run.source else name_of(run)

    @functools.cached_property
    def profiles(self) -> list[evidence.Profile]:
        return evidence.profiles(self.journal.state)

    def rows(self, summary: Summary) -> dict[str, CaseResult]:
        """Results of a run, for the cases that the task still has; in the task's order."""
        found = self.journal.cases_of(summary.run)
        return {case.id: found[case.id] for case in self.task.cases if case.id in found}

    def hottest(self, rows: dict[str, CaseResult]) -> list[Case]:
        """Timed cases, headline first, longest first: where a profile says most."""
        timed = [case for case in self.task.timed if case.id in rows]
        return sorted(timed, key=lambda case: (not case.headline, -(rows[case.id].baseline_us or 0.0)))

    def diff(self, old: Summary | None, new: Summary) -> list[str] | None:
        """What changed between two sources; None when one is not on this machine or there is nothing before."""
        if old is None:
            return None
        try:
            before, after = (trajectory.point(self.journal, item) for item in (old, new))
        except trajectory.TrajectoryError:
            return None
        return trajectory.diff(before, after, self.journal.state)


def collect(task: Task, state: Path) -> Collected:
    journal = Journal(state)
    if not journal.summaries:
        raise ExportError(f"nothing was run for {task.name} on this machine yet; {_what_to_do(task)}")
    return Collected(task, journal)


def _what_to_do(task: Task) -> str:
    """A log that came without its runs needs no new entry; what its author exported may lie beside it."""
    folder = Path(task.folder)
    if not iterations.last_entry(folder / "ITERATIONS.md"):
        return f"`kernbench run {task.name} -m TEXT` makes the first entry"
    shipped = sorted((folder / "exports").glob("*"))
    known = f"`kernbench run {task.name}` times it here"
    return f"{known}, and {_shown(shipped[0])} was exported where its log was made" if shipped else known


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def name_of(summary: Summary) -> str:
    """`#12`, or the start of the hash of a run that is no iteration."""
    return summary.source[:8] if summary.iteration is None else f"#{summary.iteration}"
