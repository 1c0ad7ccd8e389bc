"""Everything a task remembers: runs.jsonl, ITERATIONS.md and the kept sources, behind one door.

The session asks it which source is best, which entry knows a source, which floor a case has; and tells it what a run
came to. ITERATIONS.md lies in the task's folder whatever the state folder is.
"""

from __future__ import annotations

import functools
import getpass
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import Summary
from kernbench.log import best as best_source
from kernbench.log import profile_evidence
from kernbench.log.entries import entry_text, iterations_file
from kernbench.log.entries.entry_list import EntryList
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs import comparison
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import Series, best_of
from kernbench.machine.git import Git
from kernbench.task import snapshot
from kernbench.task.lookup import cannot_be_written, make_state


class Logbook:
    def __init__(self, folder: Path, state: Path, task: Task | None = None, l2: str = "cold") -> None:
        self.path = folder / "ITERATIONS.md"
        self.state = state
        self.task = task
        """Decides which series is the current one, and so which entry is best. The session replaces it when it changes;
        without a task no entry is called best."""
        self.l2 = l2
        """State of the L2 that the session times with; it decides the series too, and so does the device."""
        self.environment: Environment | None = None
        """Where the session runs; until that is known, the newest run's counts."""
        self._seen = iterations_file.KnownFile()
        self._is_read = False
        """The file held nothing unread when an entry was last appended."""
        self._elsewhere = PulledEntries(self.path)
        self._codes: dict[str, str] = {}
        """Of stored sources, by their hash."""

    @functools.cached_property
    def journal(self) -> Journal:
        """Read when it is first asked for: a long one takes a second, and the screen opens before that."""
        return Journal(self.state)

    def series(self, task: Task, environment: Environment, l2: str = "cold") -> list[Summary]:
        """The runs of the task's own series, which decides what is best, whatever a run is compared with."""
        return self.journal.series(best_source.present_series(task, self.journal, environment, l2))

    def best(self, task: Task, environment: Environment | None, l2: str = "cold") -> str | None:
        """Hash of the best source, if its snapshot is on this machine."""
        if environment is None:
            return None
        best = best_of(self.series(task, environment, l2))
        return best.source if best and self.source(best.source).is_dir() else None

    def is_same(self, task: Task, sha: str, source: snapshot.Source) -> bool:
        """Whether a stored source has the code of this one."""
        if sha == source.sha:
            return True
        stored = self.source(sha)
        return stored.is_dir() and snapshot.code_of(stored, task) == source.code

    def last_comparable(
        self, task: Task, baseline: str, environment: Environment | None, l2: str = "cold"
    ) -> Summary | None:
        """The last finished run with this task, baseline, device and condition: no other may be held against a run now.

        Until the worker is up the device is not known; then it is taken to be the one of before.
        """

        old = self.journal.old_hashes(task)

        def is_comparable(run: Summary) -> bool:
            about = environment or run.environment
            return Series.present(task, about.device, about.device_name, l2, baseline, old).includes(run)

        last = next((run for run in reversed(self.journal.summaries) if is_comparable(run)), None)
        if last is None or baseline != "best":
            return last
        best = self.best(task, environment or last.environment, l2)
        return last if last.baseline_hash == best else None

    def results_of(self, run: Summary | None) -> Mapping[str, CaseResult]:
        """By case, as the file has them: the newest run may be another process's, whose rows nobody here has seen."""
        return {} if run is None else self.journal.cases_of(run.run)

    def take_source(self) -> snapshot.Source:
        """The present source, kept; the state folder may have been removed since the workbench was opened."""
        try:
            make_state(self.state)
            return snapshot.take(self.path.parent, self.state, self.task)
        except OSError as problem:
            if problem.filename is None or not Path(problem.filename).is_relative_to(self.state):
                raise
            raise cannot_be_written(self.state, problem) from None

    def source(self, sha: str) -> Path:
        return self.state / "sources" / sha

    def number_of(self, source: snapshot.Source) -> int | None:
        """Number of the entry about this source, or of one of the present series with its code; the log may come from
        another machine."""
        number = self._elsewhere.number_of(self.journal, source.sha)
        if number is not None or self.task is None:
            return number
        series = best_source.present_series(self.task, self.journal, self.environment, self.l2)
        return self.journal.iteration_with(series, source.code, self._code_of)

    def _code_of(self, sha: str) -> str:
        """Of a stored source; empty where it is not here."""
        if sha not in self._codes:
            stored = self.source(sha)
            self._codes[sha] = snapshot.code_of(stored, self.task) if self.task and stored.is_dir() else ""
        return self._codes[sha]

    @property
    def problem(self) -> str:
        """What is wrong with the log's file, in a sentence."""
        return self._elsewhere.problem(self.journal)

    def better_elsewhere(self, summary: Summary) -> Summary | None:
        """The log's best over the same baseline on such a machine, where this run is behind it: nothing here was held
        against its source."""
        bests = [item for item in self._elsewhere.of(self.journal) if item.best]
        rivals = [item for item in bests if comparison.axis_of(item) == comparison.axis_of(summary)]
        best = max(rivals, key=lambda item: item.geomean or 0.0, default=None)
        return best if best and (best.geomean or 0.0) > (summary.geomean or 0.0) else None

    def changed(self) -> bool:
        """Whether others have finished runs or changed the log since it was last looked at; an editor may be one."""
        grown = self.journal.read_new()
        return grown or (self.path.is_file() and not self._elsewhere.current())

    def iterations(self) -> EntryList:
        """Made here, or only written down: by number."""
        if self.task is None:
            return self._elsewhere.iterations(self.journal)
        return best_source.listing(self.task, self.journal, self._elsewhere, self.environment, self.l2)

    def best_now(self) -> Summary | None:
        """The best of the session's series, as every door names it."""
        if self.task is None:
            return None
        return best_source.find(self.task, self.journal, self._elsewhere, self.environment, self.l2).summary

    def numbers(self) -> list[int]:
        return self.iterations().numbers()

    def last_entry(self) -> Summary | None:
        made = self.journal.listed()
        return made[-1] if made else None

    def enter(self, task: Task, summary: Summary, results: Mapping[str, CaseResult]) -> Summary:
        """Writes the entry and returns the summary with its number."""
        text = entry_text.EntryText(task, summary, results, self._evidence(task, summary))
        self._is_read = self._elsewhere.current()
        number = iterations_file.append(self.path, text, self.journal.highest(), self._seen)
        return comparison.numbered(summary, number)

    def finish(self, summary: Summary, results: Mapping[str, CaseResult]) -> None:
        """Keeps the run; an entry is this run's own only when that has succeeded, else the file is read again."""
        self.journal.finish(summary, results.values())
        if summary.iteration is not None and self._is_read:
            self._elsewhere.adopt(self._seen.signature)

    def reword(self, entry: Summary, hypothesis: str, next_step: str) -> None:
        """Changes the words of an entry in both places; the one that people read first."""
        new = replace(entry, hypothesis=hypothesis, next=next_step)
        if hypothesis != entry.hypothesis:
            move = (comparison.said_move(hypothesis) or entry.move) if entry.after_stall else ""
            new = replace(new, hypothesis_by=author(self.path.parent), hypothesis_at=now(), move=move)
        iterations_file.reword(self.path, entry, new)
        self.journal.words(new)

    def set_next(self, step: str) -> int | None:
        """Changes the next step of the last entry in the file and returns its number; None where there is no entry.

        The file travels with the kernel, so that entry may come from a machine whose runs are not known here.
        """
        place = self._last_written()
        if place is None:
            return None
        iterations_file.set_next(self.path, *place, step)
        last = self.last_entry()
        if last is not None and place == _place_of(last):
            self.journal.words(replace(last, next=step))
        return place[0]

    def next_step(self) -> str:
        """What the entry that `set_next` would change says now: its file may have been edited.

        Where that is what the run here said, it is told with its own line breaks: the file's may be an editor's.
        """
        place, last = self._last_written(), self.last_entry()
        written = iterations_file.next_of(self.path, *place) if place is not None else None
        own = last.next if last is not None and place == _place_of(last) else ""
        return own if written is None or written == " ".join(own.split()) else written

    def _last_written(self) -> tuple[int, str, str] | None:
        """Number, source and time of the last entry; the time is not asked of one that no run here has made."""
        last, written = self.last_entry(), iterations_file.last_entry(self.path)
        own = _place_of(last) if last is not None else None
        if written is None or (own is not None and (written == (own[0], own[1][:8]) or written[0] < own[0])):
            return own
        return *written, ""

    def add_evidence(self, task: Task, source: str) -> str:
        """Writes what the profiles of a source say into its newest entry; returns the line, empty if there is none."""
        entry = next((run for run in reversed(self.journal.numbered()) if run.source == source), None)
        line = self._evidence(task, entry) if entry else None
        if entry is not None and line:
            iterations_file.add_evidence(self.path, entry, line)
        return line or ""

    def profiled_since(self, run: Summary) -> bool:
        return any(profile.at > run.at for profile in profile_evidence.profiles(self.state))

    def _evidence(self, task: Task, summary: Summary) -> str | None:
        """Beside the best before it where both were profiled, else alone; the hottest headline case first."""
        kept = profile_evidence.profiles(self.state)
        found = [profile for profile in kept if profile.source == summary.source]
        if not found:
            return None
        label = {case.id: case.label for case in task.cases}
        before = self._best_before(summary)
        both = profile_evidence.pairs(kept, before, summary.source, list(label)) if before else []
        if both:
            return profile_evidence.line(*both[0], label[both[0][1].case])
        return profile_evidence.alone(found[-1], label.get(found[-1].case, found[-1].case))

    def _best_before(self, summary: Summary) -> str | None:
        """The other source that was best when the run began."""
        runs = (run for run in reversed(self.journal.summaries) if run.best and run.at < summary.at)
        return next((run.source for run in runs if run.source != summary.source), None)

    def text(self, number: int, source: str | None = None, at: str = "") -> str:
        """Of two entries with one number, that of the source and time."""
        found = iterations_file.entry_of(self.path, number, source, at) or iterations_file.entry_of(self.path, number)
        return found or f"{self.path.name} has no entry {number}"

    def floor(self, *keys: str) -> float | None:
        """The first that is known; a floor may have been stored under the task's old hash."""
        return next((self.journal.floors[key] for key in keys if key in self.journal.floors), None)


def _place_of(made: Summary) -> tuple[int, str, str]:
    return made.iteration or 0, made.source, made.at


def floor_key(task_hash: str, baseline: str, environment: Environment, case: str) -> str:
    """An A/A floor holds for this machine, these versions, this task and case."""
    parts = (environment.device_name, environment.torch, environment.triton, task_hash, baseline, case)
    return "|".join(str(part) for part in parts)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@functools.cache
def author(folder: Path) -> str:
    """Who is at the keyboard, as commits in this folder would name them, in words that can be written to a log."""
    name = os.fsencode(os.environ.get("GIT_AUTHOR_NAME", ""))
    name = name or (Git(folder).ask("config", "user.name", seconds=2) or "").strip().encode()
    try:
        name = name or os.fsencode(getpass.getuser())
    except (OSError, KeyError):  # nobody that the system knows
        return ""
    return " ".join(name.decode(errors="replace").split())
