"""Which source is best: the only module that decides, for the header, the pane, `status`, `log`, `show`, `restore`,
exports and `port`.

It is the confirmed best of the task's own series by the runs on this machine. If they have none (a log that was only
pulled), it is the last entry that the log itself calls best over the task's own baseline, on this device if the log has
one, unless a run here has proved its source wrong or the entry is about another task. A dropped entry counts too: its
source stays the best until another takes over. If there is none either, the answer is the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench import render
from kernbench.events import PulledEntry, Summary
from kernbench.log.entries import pulled_entries
from kernbench.log.entries.entry_list import EntryList, Key, key_of
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import Series, may_be_best

NoBestReason = Literal["nothing_run", "task_changed", "none_right", "unsettled", "refused"]
_WORDS: dict[NoBestReason, str] = {
    "nothing_run": "no best yet: nothing has been run on this machine",
    "task_changed": "no best yet: the task changed; nothing has been timed against {baseline} since",
    "none_right": "no best yet: no source that passed every case was timed against {baseline}",
    "unsettled": "no best yet: the first one waits for its confirmation in a new worker",
    "refused": "no best yet: a new worker confirmed none of the sources that would be best",
}


@dataclass(frozen=True)
class Best:
    """The answer: a run, an entry, or the reason why there is none."""

    series: Series | None
    """The current series; None if nothing was run here."""
    summary: Summary | None = None
    """The run that made it best, with the entry about its source if there is one; a PulledEntry from a pulled log."""
    reason: NoBestReason | None = None
    """Why there is none."""
    is_unconfirmed: bool = False
    """It became best with a run of an older version, which confirmed nothing."""

    @property
    def key(self) -> Key | None:
        """Names its entry; None if it has none."""
        return key_of(self.summary) if self.summary is not None and self.summary.iteration is not None else None

    def problem(self, task: Task) -> str:
        """Why there is none, in a sentence."""
        return _WORDS[self.reason].format(baseline=task.baseline) if self.reason else ""


def present_series(task: Task, journal: Journal, environment: Environment | None = None, l2: str = "cold") -> Series:
    """The task's own series, on this device or that of the newest run."""
    about = environment or (journal.summaries[-1].environment if journal.summaries else Environment())
    return Series.present(task, about.device, about.device_name, l2, task.baseline, journal.old_hashes(task))


def find(
    task: Task, journal: Journal, entries: PulledEntries, environment: Environment | None = None, l2: str = "cold"
) -> Best:
    """Finds the best; without an environment, on the device of the newest run."""
    if not journal.summaries:
        written = _written(task, journal, entries, l2, environment.device_name if environment else "")
        return Best(None, written) if written else Best(None, reason="nothing_run")
    series = present_series(task, journal, environment, l2)
    if found := journal.best(series):
        made = _made_with(journal, series, found.source) if found.iteration is None else None
        number = (made or found).iteration or entries.number_of(journal, found.source)
        shown = replace(made or found, iteration=number, dropped=journal.is_dropped((made or found).run))
        return Best(series, shown, is_unconfirmed=found.confirmed is None)
    if written := _written(task, journal, entries, l2, series.device_name):
        return Best(series, written)
    return Best(series, reason=_why_none(journal, series))


def _why_none(journal: Journal, series: Series) -> NoBestReason:
    runs = journal.series(series)
    if any(may_be_best(runs, run) for run in reversed(runs) if run.is_unsettled):
        return "unsettled"
    if any(run.is_refused for run in runs):
        return "refused"
    return "none_right" if _was_run(journal, series) else "task_changed"


def listing(
    task: Task, journal: Journal, entries: PulledEntries, environment: Environment | None = None, l2: str = "cold"
) -> EntryList:
    """The iterations, with the best marked."""
    series = present_series(task, journal, environment, l2)
    return entries.iterations(journal, series, lambda: find(task, journal, entries, environment, l2).key)


def outcome(listed: EntryList, entry: Summary) -> str:
    """The word an entry was logged with, and whether it is the best now. A later run has decided what was undecided."""
    word = render.outcome(entry)
    if not listed.is_best_now(entry):
        return word
    return "best now" if word in ("best", "undecided", render.UNSETTLED) else f"{word}, best now"


def _written(
    task: Task, journal: Journal, entries: PulledEntries, l2: str, device_name: str = ""
) -> PulledEntry | None:
    """The last pulled entry that the log calls best over the task's own baseline; first choice: one of this device."""
    old = journal.old_hashes(task)
    written = [*entries.of(journal), *pulled_entries.dropped(journal)]
    own = [item for item in written if item.holds and is_of(task, item, l2, old)]
    wrong = {run.source for run in journal.summaries if run.disproved} if own else set()
    own = [item for item in own if device_name and item.environment.device_name == device_name] or own
    newest_first = sorted(own, key=lambda item: item.iteration or 0, reverse=True)
    return next((item for item in newest_first if not _is_among(item.source, wrong)), None)


def is_of(task: Task, entry: PulledEntry, l2: str, old: frozenset[str]) -> bool:
    """Of the task's own series: an entry has the first digits of the task's hash, the oldest entries have none."""
    if entry.baseline not in ("", task.baseline) or entry.environment.l2 not in ("", l2):
        return False
    return not entry.task_hash or any(known.startswith(entry.task_hash) for known in (task.hash, *old))


def _is_among(short: str, sources: set[str]) -> bool:
    return bool(short) and any(source.startswith(short) for source in sources)


def _was_run(journal: Journal, series: Series) -> bool:
    """Whether any run here is of the current task, over any baseline."""
    hashes = {series.task_hash, *series.old_task_hashes}
    return any(run.task_hash in hashes for run in journal.summaries)


def _made_with(journal: Journal, series: Series, source: str) -> Summary | None:
    """The entry that a later run of this source made, if its first run made none."""
    made = (run for run in journal.series(series) if run.iteration is not None and run.source == source)
    return next((run for run in made if run.best), None)
