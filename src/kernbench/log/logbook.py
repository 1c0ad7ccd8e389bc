"""Everything kept for a task: runs.jsonl, ITERATIONS.md and the stored sources, behind one interface.

The session asks which source is best, which entry is about a source and which floor a case has, and reports the result
of each run. ITERATIONS.md is in the task's folder, wherever the state folder is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import Confirmed, Summary
from kernbench.log import best as best_source
from kernbench.log import profile_evidence, stored_sources
from kernbench.log.entries import entry_text, iterations_file, pulled_entries
from kernbench.log.entries.entry_list import EntryList
from kernbench.log.entries.iterations_file import add_confirmation, add_second_try
from kernbench.log.entries.log_lock import PATIENCE, LogbookError
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.file_thread import FileThread
from kernbench.log.runs import comparison
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import JournalError
from kernbench.log.runs.series import Series, best_of
from kernbench.machine.git import author
from kernbench.task import snapshot
from kernbench.task.lookup import cannot_be_written, make_state

WAITS = "the entry will be written as soon as possible, or else when kernbench next starts on this task"


class Logbook:
    def __init__(self, folder: Path, state: Path, task: Task | None = None, l2: str = "cold") -> None:
        self.path = folder / "ITERATIONS.md"
        self.state = state
        self.task = task
        """Decides which series is current, and so which entry is best. The session replaces it when it changes; without
        a task no entry is called best."""
        self.l2 = l2
        """State of the L2 that the session times with; like the device, it is part of the series."""
        self.environment: Environment | None = None
        """Where the session runs; until that is known, the environment of the newest run counts."""
        self._seen = iterations_file.KnownFile()
        self._elsewhere = PulledEntries(self.path)
        self._noticed: tuple[int, int, int] | None = None
        """Signature of ITERATIONS.md at the last check or entry."""
        self._codes: dict[str, str] = {}
        """Code hashes of stored sources, by source hash."""
        self.in_thread = FileThread()
        """Runs what reads and writes the task's files; only commands without a loop do that at once."""

    @functools.cached_property
    def journal(self) -> Journal:
        """Read on first use: a long journal takes a second, and the screen opens before that."""
        return Journal(self.state)

    def series(self, task: Task, environment: Environment, l2: str = "cold") -> list[Summary]:
        """The runs of the task's own series. It decides what is best, whatever baseline a run uses."""
        return self.journal.series(best_source.present_series(task, self.journal, environment, l2))

    def best(self, task: Task, environment: Environment | None, l2: str = "cold") -> str | None:
        """Hash of the best source, if its snapshot is on this machine."""
        if environment is None:
            return None
        best = best_of(self.series(task, environment, l2))
        return best.source if best and self.has_source(best.source) else None

    def damage(self, task: Task, environment: Environment, l2: str) -> list[str]:
        """Why no source is timed against the best, if the stored one is damaged or gone."""
        best = best_of(self.series(task, environment, l2))
        if best is None or self.has_source(best.source):
            return []
        return [f"nothing is timed against the best: {stored_sources.lost(self.source(best.source), 'the best')}"]

    def has_entry(self, source: snapshot.Source) -> bool:
        """Whether an entry is about this source; it may still wait for ITERATIONS.md."""
        waiting = [self.journal.summaries[place].source for place in list(self.journal.waiting.values())]
        return source.sha in waiting or self.number_of(source) is not None

    def is_same(self, task: Task, sha: str, source: snapshot.Source) -> bool:
        """Whether a stored source has the code of this one."""
        if sha == source.sha:
            return True
        return self.has_source(sha) and snapshot.code_of(self.source(sha), task) == source.code

    def last_comparable(
        self, task: Task, baseline: str, environment: Environment | None, l2: str = "cold"
    ) -> Summary | None:
        """The last finished run with this task, baseline, device and condition: only it can be compared with a run now.

        Until the worker is up the device is not known, and each run's own device counts.
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
        """Rows by case, read from the file: the newest run may belong to another process. A pulled entry has them in
        its text."""
        if run is not None and run.local_run is not run and self.task is not None:
            return pulled_entries.rows(self.task, self._elsewhere.edited.text_of(run))
        return {} if run is None else self.journal.cases_of(run.run)

    def take_source(self, folder: Path | None = None) -> snapshot.Source:
        """Takes a snapshot of the current source, or of a folder; recreates the state folder if it was removed."""
        try:
            make_state(self.state)
            return snapshot.take(folder or self.path.parent, self.state, self.task)
        except OSError as problem:
            if problem.filename is not None and not Path(problem.filename).is_relative_to(self.state):
                raise
            raise cannot_be_written(self.state, problem) from None

    def source(self, sha: str) -> Path:
        return self.state / "sources" / sha

    def has_source(self, sha: str) -> bool:
        return snapshot.is_whole(self.source(sha))

    def number_of(self, source: snapshot.Source) -> int | None:
        """Number of the entry about this source, or of one in the current series with the same code; the log may come
        from another machine."""
        number = self._elsewhere.number_of(self.journal, source.sha)
        if number is not None or self.task is None:
            return number
        series = best_source.present_series(self.task, self.journal, self.environment, self.l2)
        return self.journal.iteration_with(series, source.code, self._code_of)

    def _code_of(self, sha: str) -> str:
        """Code hash of a stored source; empty if it is not here."""
        if sha not in self._codes:
            self._codes[sha] = ""
            if self.task is not None and self.has_source(sha):
                self._codes[sha] = snapshot.code_of(self.source(sha), self.task)
        return self._codes[sha]

    @property
    def problem(self) -> str:
        """What is wrong with ITERATIONS.md, in a sentence."""
        return self._elsewhere.problem(self.journal)

    def better_elsewhere(self, summary: Summary) -> Summary | None:
        """The log's best over the same baseline on the same device, if it is ahead of this run: nothing here was
        compared with its source."""
        bests = [item for item in self._elsewhere.of(self.journal) if item.holds]
        rivals = [item for item in bests if comparison.axis_of(item) == comparison.axis_of(summary)]
        best = max(rivals, key=lambda item: item.geomean or 0.0, default=None)
        return best if best and (best.geomean or 0.0) > (summary.geomean or 0.0) else None

    def changed(self) -> bool:
        """Whether another process or an editor has added runs or changed the log since the last check."""
        grown = self.journal.read_new()
        before = self._noticed or self._elsewhere.signature
        self.refresh()
        self._noticed = self._elsewhere.signature
        return grown or before != self._noticed

    def keep_entries(self) -> None:
        """From now on ITERATIONS.md is only looked at by `refresh`, in the thread, so that the screen never waits."""
        self._elsewhere.is_kept = True

    def refresh(self) -> None:
        """Reads ITERATIONS.md if it has changed, and runs.jsonl on first use."""
        self._elsewhere.refresh(self.journal)

    def iterations(self) -> EntryList:
        """Iterations by number, whether run here or only written in the log."""
        if self.task is None:
            return self._elsewhere.iterations(self.journal)
        return best_source.listing(self.task, self.journal, self._elsewhere, self.environment, self.l2)

    def summary(self, run: str) -> Summary | None:
        """Of a run of this machine."""
        return self.journal.summary(run)

    def best_now(self) -> Summary | None:
        """The best of the session's series."""
        if self.task is None:
            return None
        return best_source.find(self.task, self.journal, self._elsewhere, self.environment, self.l2).summary

    def numbers(self) -> list[int]:
        return self.iterations().numbers()

    def last_entry(self) -> Summary | None:
        made = self.journal.listed()
        return made[-1] if made else None

    def finish(
        self, task: Task, summarise: Callable[[], Summary], results: Mapping[str, CaseResult], patience: float
    ) -> tuple[Summary, str]:
        """Stores a run and writes its entry, after those that wait. Returns the summary, with the entry's number, and
        why an entry waits, if one does.

        The run is summarised with the lock held, so that of two processes with one new source only one is the first.
        It is in runs.jsonl before its entry is in ITERATIONS.md, and marked until it is.
        """
        stored: list[Summary] = []

        def store(number: int | None) -> None:
            self.journal.read_new()  # runs that other processes finished meanwhile
            stored.append(replace(summarise(), iteration=number))
            self.journal.finish(stored[0], results.values(), True)

        try:
            self.enter_waiting(patience)
            is_read = self._elsewhere.current()
            entered = self.enter(task, lambda: stored[0], results, store, patience)
        except LogbookError as problem:
            if not stored:
                store(None)
            return replace(stored[0], iteration=None), f"{problem}; {WAITS}"
        self._note_entered(entered)
        if is_read:
            self._elsewhere.signature = self._seen.signature
        self.refresh()
        self._noticed = self._elsewhere.signature
        return entered, ""

    def enter(
        self,
        task: Task,
        summary: Callable[[], Summary],
        results: Mapping[str, CaseResult],
        store: Callable[[int], None] = lambda number: None,
        patience: float = PATIENCE,
    ) -> Summary:
        """Writes the entry and returns the summary with its number; `summary` is asked after `store`."""

        def text(number: int) -> str:
            run = summary()
            return entry_text.EntryText(task, run, results, self._evidence(task, run))(number)

        highest = self.journal.highest()
        number = iterations_file.append(self.path, text, highest, self._seen, store=store, patience=patience)
        return comparison.numbered(summary(), number)

    def enter_waiting(self, patience: float = 0.0) -> list[int]:
        """Writes the entries that wait, oldest first, and returns their numbers; raises LogbookError if it cannot.

        An entry that a killed process had written, without saying so in runs.jsonl, is found by its run.
        """
        numbers = []
        for place in list(self.journal.waiting.values()):
            run = self.journal.summaries[place]
            at_least = run.iteration - 1 if run.iteration is not None else self.journal.highest()
            self._seen.signature = None  # read the file: the entry may be there
            text, look_for = functools.partial(self._text_of, run), run.run
            number = iterations_file.append(self.path, text, at_least, self._seen, run=look_for, patience=patience)
            self._note_entered(comparison.numbered(run, number))
            numbers.append(number)
        if numbers:
            self.refresh()
        return numbers

    def _text_of(self, run: Summary, number: int) -> str:
        """The text of an entry that waited. The task is as it was for its run: it may have changed since."""
        task = self.task
        if (task is None or task.hash != run.task_hash) and self.has_source(run.source):
            with contextlib.suppress(UserError, OSError):
                task = taskfile.load(self.source(run.source))
        task = task or taskfile.load(self.path.parent)
        rows, confirmation = self.journal.cases_of(run.run), self.journal.confirmations.get(run.run)
        return entry_text.EntryText(task, run, rows, self._evidence(task, run), confirmation)(number)

    def _note_entered(self, entered: Summary) -> None:
        """If this line cannot be written, the entry is found by its run later."""
        with contextlib.suppress(JournalError):
            self.journal.enter(entered.run, entered.iteration or 0)

    def reword(self, entry: Summary, hypothesis: str, next_step: str) -> None:
        """Changes the words of an entry in both files, ITERATIONS.md first."""
        new = replace(entry, hypothesis=hypothesis, next=next_step)
        if hypothesis != entry.hypothesis:
            move = (comparison.said_move(hypothesis) or entry.move) if entry.after_stall else ""
            new = replace(new, hypothesis_by=author(self.path.parent), hypothesis_at=now(), move=move)
        if entry.run not in self.journal.waiting:  # else the entry will have them from the start
            iterations_file.reword(self.path, entry, new)
            self.refresh()
        self.journal.words(new)

    def set_next(self, step: str) -> int | None:
        """Changes the next step of the last entry in the file and returns its number; None if there is no entry.

        The file travels with the kernel, so the entry may come from a machine whose runs are not known here.
        """
        place = self._last_written()
        if place is None:
            return None
        iterations_file.set_next(self.path, *place, step)
        self.refresh()
        last = self.last_entry()
        if last is not None and place == _place_of(last):
            self.journal.words(replace(last, next=step))
        return place[0]

    def next_step(self) -> str:
        """The next step that `set_next` would change, as the file has it now: it may have been edited.

        If the words are those of the run here, returns them with the run's line breaks: an editor may have rewrapped
        the file.
        """
        place, last = self._last_written(), self.last_entry()
        written = iterations_file.next_of(self.path, *place) if place is not None else None
        own = last.next if last is not None and place == _place_of(last) else ""
        return own if written is None or written == " ".join(own.split()) else written

    def _last_written(self) -> tuple[int, str, str] | None:
        """Number, source and time of the last entry; the time is empty if no run here made it."""
        last, written = self.last_entry(), iterations_file.last_entry(self.path)
        own = _place_of(last) if last is not None else None
        if written is None or (own is not None and (written == (own[0], own[1][:8]) or written[0] < own[0])):
            return own
        return *written, ""

    def add_evidence(self, task: Task, source: str) -> str:
        """Writes the evidence from a source's profiles into its newest entry; returns the line, or an empty one."""
        entry = next((run for run in reversed(self.journal.numbered()) if run.source == source), None)
        line = self._evidence(task, entry) if entry else None
        if entry is not None and line:
            iterations_file.add_evidence(self.path, entry, line)
        return line or ""

    def correct(self, run: str, rows: Sequence[CaseResult], sentence: str, patience: float) -> str:
        """Corrects rows of a finished run and adds the sentence to its entry, if it has one. Returns why the entry
        could not be changed."""
        self.journal.correct(run, rows)
        return self._add_to(run, lambda path, entry: add_second_try(path, entry, sentence, patience))

    def confirm(self, event: Confirmed, usual: str, patience: float) -> str:
        """The same for what came of a run that would be best; `usual` is the task's baseline."""
        self.journal.confirm(event)
        return self._add_to(event.run, lambda path, entry: add_confirmation(path, entry, event, usual, patience))

    def _add_to(self, run: str, add: Callable[[Path, Summary], None]) -> str:
        entry = next((item for item in self.journal.listed() if item.run == run), None)
        if entry is None or run in self.journal.waiting:  # an entry that waits will have it from the start
            return ""
        try:
            add(self.path, entry)
        except LogbookError as problem:
            return str(problem)
        self.refresh()
        return ""

    def profiled_since(self, run: Summary) -> bool:
        return any(profile.at > run.at for profile in profile_evidence.profiles(self.state))

    def _evidence(self, task: Task, summary: Summary) -> str | None:
        """Compared with the previous best if both were profiled, else alone; the hottest headline case first."""
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
        """The source that was best when the run began, unless it is the run's own."""
        runs = (run for run in reversed(self.journal.summaries) if run.holds and run.at < summary.at)
        return next((run.source for run in runs if run.source != summary.source), None)

    def text(self, number: int, source: str | None = None, at: str = "") -> str:
        """Text of an entry; of two with the same number, the one with this source and time."""
        found = iterations_file.entry_of(self.path, number, source, at) or iterations_file.entry_of(self.path, number)
        return found or f"{self.path.name} has no entry {number}"

    def floor(self, *keys: str) -> float | None:
        """The first known floor; it may be stored under the task's old hash."""
        return next((self.journal.floors[key] for key in keys if key in self.journal.floors), None)


def _place_of(made: Summary) -> tuple[int, str, str]:
    return made.iteration or 0, made.source, made.at


def floor_key(task_hash: str, baseline: str, environment: Environment, case: str) -> str:
    """An A/A floor is valid for one device, versions, task, baseline and case."""
    parts = (environment.device_name, environment.torch, environment.triton, task_hash, baseline, case)
    return "|".join(str(part) for part in parts)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
