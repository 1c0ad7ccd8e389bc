"""What every format is made from: the task, its log, the present series and one frame of all runs."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.records import Case, CaseResult, Task, UserError
from kernbench import compare, trajectory
from kernbench.events import Summary
from kernbench.journal import Journal
from kernbench.profiling import evidence

if TYPE_CHECKING:
    import pandas


class ExportError(UserError):
    """The log cannot be exported; one sentence."""


@dataclass(frozen=True)
class Collected:
    task: Task
    journal: Journal

    @functools.cached_property
    def frame(self) -> pandas.DataFrame:
        from kernbench.frame import frame

        return frame(self.task, self.journal)

    @functools.cached_property
    def entries(self) -> list[Summary]:
        """The iterations; where there are only plain runs, those."""
        return self.journal.iterations() or list(self.journal.summaries)

    @functools.cached_property
    def series(self) -> list[Summary]:
        """Those that may be compared with the newest one."""
        last = self.entries[-1]
        return compare.series_of(self.entries, compare.Series.of(last))

    @functools.cached_property
    def best(self) -> Summary | None:
        return compare.best_of(self.series)

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
        command = f"`kernbench run {task.name} -m TEXT`"
        raise ExportError(f"nothing was run for {task.name} on this machine yet; {command} makes the first entry")
    return Collected(task, journal)


def name_of(summary: Summary) -> str:
    """`#12`, or the start of the hash of a run that is no iteration."""
    return summary.source[:8] if summary.iteration is None else f"#{summary.iteration}"
