"""What every format is made from: the task, its log, the current series and one frame of all runs."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.shared import format as fmt
from harness.shared.lines import to_dict
from harness.shared.results import CaseResult
from harness.shared.task import Case, Task
from kernbench import render
from kernbench.diagnosis.counters import Profile
from kernbench.events import Summary
from kernbench.export.formats import ExportError
from kernbench.log import best as best_source
from kernbench.log import profile_evidence, stored_sources
from kernbench.log.entries import iterations_file, pulled_entries
from kernbench.log.entries.entry_list import EntryList
from kernbench.log.entries.pulled_entries import UNDECODED, PulledEntries
from kernbench.log.gpu_types import GpuTypes
from kernbench.log.runs import comparison
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import Series, series_of

if TYPE_CHECKING:
    import pandas


OPENED = "the source as first opened"


@dataclass(frozen=True)
class Collected:
    task: Task
    journal: Journal

    @functools.cached_property
    def frame(self) -> pandas.DataFrame:
        from kernbench.export.data_frame import by_gpu_type, frame

        return by_gpu_type(frame(self.task, self.with_rows()), self.types)

    @functools.cached_property
    def types(self) -> GpuTypes:
        """The same sources on several GPU types, if there are several."""
        return GpuTypes(self.task, self.journal, self._log)

    def with_rows(self) -> Iterator[tuple[Summary, list[dict[str, Any]]]]:
        """Every finished run with its rows as they landed; if nothing ran here, the entries of a pulled log."""
        if not self.runs:
            for item in self.entries:  # a log names the machine and not the number of its GPU
                about = replace(item.environment, device="")
                yield replace(item, environment=about), [to_dict(row) for row in self.rows(item).values()]
            return
        by_run = {summary.run: summary for summary in self.runs}
        yield from ((by_run[run], rows) for run, rows in self.journal.runs() if run in by_run)

    @functools.cached_property
    def present(self) -> Series:
        """The task's own series, which decides what is best; if it is empty, that of the newest iteration or of the
        newest complete run."""
        runs = self.journal.summaries
        if not runs:
            return _series_of_pulled(self.entries, self.task, self.journal)
        own = best_source.present_series(self.task, self.journal)
        if self.journal.series(own):
            return own
        whole = [run for run in runs if run.complete and run.baseline != "best"]
        return Series.of((self.journal.numbered() or whole or runs)[-1])

    def series_for(self, run: Summary) -> Series:
        """The series of a run; the current one also if the run has an old hash of the task."""
        return self.present if self.present.includes(run) else Series.of(run)

    @functools.cached_property
    def runs(self) -> list[Summary]:
        """Every finished run, oldest first, with the words that its entry has now."""
        return list(self._log.edited.applied(self.journal.summaries))

    @functools.cached_property
    def _log(self) -> PulledEntries:
        """ITERATIONS.md, read once."""
        found = stored_sources.entries_of(self.task)
        found.of(self.journal)
        return found

    @functools.cached_property
    def entries(self) -> list[Summary]:
        """The iterations as `kernbench log` lists them, by number: run here, or a PulledEntry."""
        return list(self._listed)

    @functools.cached_property
    def _listed(self) -> EntryList:
        return best_source.listing(self.task, self.journal, self._log)

    def outcome(self, item: Summary) -> str:
        """The word of an entry, with a note if it is the best now; of several GPU types each has its own best."""
        return render.outcome(item) if self.types.names else best_source.outcome(self._listed, item)

    @functools.cached_property
    def made(self) -> list[Summary]:
        """The iterations that runs here have made."""
        return [item for item in self.entries if item.local_run is item]

    def written(self) -> Iterator[str]:
        """The whole text of each entry in the file; empty if it is no longer there."""
        return map(self._log.edited.text_of, self.entries)

    def text_of(self, entry: Summary) -> str:
        """The text of one entry in the file."""
        return self._log.edited.text_of(entry)

    @property
    def nothing_logged(self) -> str:
        runs = fmt.plural(len(self.runs), "plain run")
        command = f"kernbench run {shlex.quote(self.task.name)} -m TEXT"
        return f"No entries yet, only {runs}; `{command}` makes an entry."

    @functools.cached_property
    def series(self) -> list[Summary]:
        """What is drawn, by number: entries of the present series. A pulled one that was timed again here is drawn as
        that run. Without entries, the plain runs."""
        drawn = [self._drawn(item) for item in self.entries]
        unique = {run.run or id(run): run for run in drawn if run is not None}.values()
        return list(unique) or series_of(self.runs, self.present)

    def _drawn(self, entry: Summary) -> Summary | None:
        run = entry.local_run
        if run is not None and self.present.includes(run):
            return run
        return entry if run is not entry and self._is_pulled_of_present(entry) else None

    def _is_pulled_of_present(self, entry: Summary) -> bool:
        present = self.present
        axis = present.baseline, present.device_name, present.l2
        hashes = (present.task_hash, *present.old_task_hashes)
        same_task = any(comparison.is_same_task(known, entry.task_hash) for known in hashes)
        return same_task and comparison.axis_of(entry) == axis

    @functools.cached_property
    def best(self) -> Summary | None:
        """A run of this machine, or a pulled entry that was not timed here."""
        found = self._best.summary
        found = found and (found.local_run or found)
        return next((run for run in self.runs if found is not None and run.run == found.run), found)

    @property
    def no_best(self) -> str:
        """Why there is no best, in a sentence."""
        return self._best.problem(self.task) or "the best source was not run on this machine"

    @functools.cached_property
    def _best(self) -> best_source.Best:
        return best_source.find(self.task, self.journal, self._log)

    def first_of(self, series: Series) -> Summary | None:
        """The first run of the series, or the entry that a later run of its source made."""
        runs = [run for run in series_of(self.runs, series) if run.complete]
        told = (run for run in runs if run.source == runs[0].source and run.iteration is not None)
        return next(told, runs[0]) if runs else None

    def words_for(self, run: Summary) -> str:
        """`#12`; for a plain run, the entry about its source, or the words for the first source."""
        if run.iteration is not None:
            return name_of(run)
        if number := self._number_of(run):
            return f"#{number} as timed again here"
        first = self.first_of(self.series_for(run))
        return OPENED if first is not None and first.source == run.source else name_of(run)

    def column_for(self, run: Summary) -> str:
        """The same, short enough for a column title; `#12` alone heads only that entry's own numbers."""
        if run.iteration is None and (number := self._number_of(run)):
            return f"#{number} again"
        return "as opened" if self.words_for(run) == OPENED else name_of(run)

    def _number_of(self, run: Summary) -> int | None:
        return self._log.number_of(self.journal, run.source)

    @functools.cached_property
    def profiles(self) -> list[Profile]:
        return profile_evidence.profiles(self.journal.state)

    def rows(self, summary: Summary) -> dict[str, CaseResult]:
        """Results of a run or of a pulled entry, for the cases that the task still has; in the task's order."""
        if summary.local_run is not summary:
            return pulled_entries.rows(self.task, self.text_of(summary))
        found = self.journal.cases_of(summary.run)
        return {case.id: found[case.id] for case in self.task.cases if case.id in found}

    def hottest(self, rows: dict[str, CaseResult]) -> list[Case]:
        """Timed cases, headline first, longest first: the order in which profiles say most."""
        timed = [case for case in self.task.timed if case.id in rows]
        return sorted(timed, key=lambda case: (not case.headline, -(rows[case.id].baseline_us or 0.0)))

    def diff(self, old: Summary | None, new: Summary) -> list[str] | None:
        """The diff between two sources; None if one is not kept here or there is no earlier one."""
        if old is None:
            return None
        try:
            before, after = (stored_sources.point(self.journal, item) for item in (old, new))
        except stored_sources.SourceError:
            return None
        return stored_sources.diff(before, after, self.task, UNDECODED)


def collect(task: Task, state: Path, needs_runs: bool = True) -> Collected:
    """What is exported; a log that was pulled without its runs is enough for all formats but `pr`."""
    journal = Journal(state)
    about = Collected(task, journal)
    if not journal.summaries and (needs_runs or not about.entries):
        raise ExportError(f"{task.name} has not been run on this machine yet; {_what_to_do(task)}")
    return about


def _series_of_pulled(entries: Sequence[Summary], task: Task, journal: Journal) -> Series:
    """That of the entries with a speedup that share a plot; if these ran the present task, older hashes of that belong
    to it."""
    timed = [item for item in entries if item.geomean is not None]
    newest = comparison.newest_of_plot(timed or entries, _is_alike)
    is_present = bool(newest.task_hash) and task.hash.startswith(newest.task_hash)
    old = journal.old_hashes(task) if is_present else frozenset()
    return Series(newest.task_hash, *comparison.axis_of(newest), old_task_hashes=old)


def _is_alike(item: Summary, other: Summary) -> bool:
    same_task = comparison.is_same_task(item.task_hash, other.task_hash)
    return same_task and comparison.axis_of(item) == comparison.axis_of(other)


def _what_to_do(task: Task) -> str:
    """A log pulled without its runs needs no new entry; its author's exports may be next to it."""
    folder, command = Path(task.folder), f"kernbench run {shlex.quote(task.name)}"
    if not iterations_file.last_entry(folder / "ITERATIONS.md"):
        return f"`{command} -m TEXT` makes the first entry"
    shipped = sorted((folder / "exports").glob("*"))
    known = f"`{command}` times it here"
    if not shipped:
        return known
    return f"{known}, and {_shown(shipped[0])} {'holds' if shipped[0].is_dir() else 'is'} its author's export"


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def name_of(summary: Summary) -> str:
    """`#12`; for a plain run of its source `#12 again`, else the start of the hash."""
    if summary.iteration is not None:
        return f"#{summary.iteration}"
    return summary.source[:8] if summary.repeats is None else f"#{summary.repeats} again"
