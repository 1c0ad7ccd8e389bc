"""The state behind the screen: the engine's events folded into rows. No Textual here.

Numbers of an earlier source stay until the new source's row lands; until then the row is not `fresh`. Grid cases are
counted, and only those that fail become rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from harness.shared.codes import AFTER_ANOTHER
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Case, Task
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Confirmed,
    Confirming,
    Event,
    ModelsChanged,
    Progress,
    RunCancelled,
    RunFinished,
    RunStarted,
    Summary,
    TaskLoaded,
    WorkerChanged,
)
from kernbench.task import case_choice
from kernbench.tui.state.row_history import RowHistory

_KIND_ORDER = {"case": 1, "smoke": 2, "check": 3}


@dataclass(frozen=True)
class Row:
    case: Case
    result: CaseResult | None
    fresh: bool
    """The result belongs to the newest source."""
    before: CaseResult | None = None
    """The result of the finished run before."""


@dataclass(frozen=True)
class Change:
    """What to repaint, apart from the status lines."""

    cases: frozenset[str] = frozenset()
    rows: bool = False
    """All rows: their order, number or dimming changed."""


@dataclass(frozen=True)
class GridCount:
    total: int
    landed: int
    right: int
    skipped: int
    fresh: bool


class Board:
    def __init__(
        self,
        task: Task,
        environment: Environment | None = None,
        results: Mapping[str, CaseResult] | None = None,
        summary: Summary | None = None,
        gpu_here: bool = True,
    ) -> None:
        """`gpu_here` is a guess, used until the worker reports its device."""
        self.task = task
        self.environment = environment
        self.summary = summary
        self.best_now: Summary | None = None
        """The current best, from the log."""
        self.worker: Literal["starting", "ready", "lost"] = "starting" if environment is None else "ready"
        self.worker_detail = ""
        self.run: RunStarted | None = None
        """The run in progress."""
        self.last_run: RunStarted | None = None
        self.progress: Progress | None = None
        self.progress_at: datetime | None = None
        """When the current step of the current case started (set by the caller)."""
        self.confirming: Confirming | None = None
        """The confirmation in progress."""
        self.confirmation: Confirmed | None = None
        """What came of the last one, until the next run."""
        self.models = ModelsChanged(())
        self.sweep = ""
        """The stage of the sweep in progress; empty if there is none."""
        self.failure: BuildFailed | None = None
        self.cancelled = ""
        self.solution = "solution.py"
        """Name of the file the user edits."""
        self.new_series = False
        """The task changed since the last finished run."""
        self._results = dict(results or {})
        self._fresh: set[str] = set()
        self._finished = dict(self._results)
        """Results of the last finished run."""
        self._to_beat: dict[str, CaseResult] = {}
        """Results that the newest run's rows are compared with when they land."""
        self._before: dict[str, CaseResult] = {}
        """The result that each row was compared with when it landed."""
        self._landed_last: set[str] = set()
        """Cases that landed in the last run before the newest that had any."""
        self.warning = ""
        """Why times are doubtful right now: another process on the GPU, or throttling."""
        self.reading = False
        """The log is still being read: earlier results are unknown."""
        self.gpu_here = gpu_here
        self.usual_seconds: float | None = None
        """How long a run usually takes, from earlier runs."""
        self.history = RowHistory()
        """Of the rows, over the iterations."""
        self.cases = self._order()
        """Cases that have a row, in table order."""

    def remember(self, results: Mapping[str, CaseResult], summary: Summary | None) -> Change:
        """Take over earlier results, once the log is read."""
        self.reading = False
        self.summary = summary
        self._results = dict(results)
        self._finished = dict(results)
        self.cases = self._order()
        return Change(rows=True)

    def continues(self, event: Progress) -> bool:
        """Whether it is about the step in progress, whatever compiler that runs."""
        return self.progress is not None and replace(event, compiler=self.progress.compiler) == self.progress

    def apply(self, event: Event) -> Change:
        """Apply one event and return what it changed."""
        if isinstance(event, CaseLanded):
            return self._land(event)
        if isinstance(event, Progress):
            self.progress = event
            return Change()
        if isinstance(event, RunStarted):
            self.run = self.last_run = event
            self.confirmation = None
            self.progress, self.failure, self.cancelled = None, None, ""
            self._landed_last = self._fresh or self._landed_last
            self._fresh = set()
            same = self.summary is not None and self.summary.baseline == event.baseline
            self._to_beat = self._finished if same else {}  # ratios over different baselines are not comparable
            if not same:
                self._before = {}
            return Change(rows=True)
        if isinstance(event, RunFinished | BuildFailed | RunCancelled):
            return self._end(event)
        if isinstance(event, Confirming):
            self.confirming = event if event.is_running else None
            return Change()
        if isinstance(event, Confirmed):
            return self._confirm(event)
        if isinstance(event, ModelsChanged):
            shown, self.models = self.models.lines, event
            return Change(rows=shown != event.lines)
        if isinstance(event, TaskLoaded):
            return self._change_task(event)
        if isinstance(event, WorkerChanged):
            self.worker, self.worker_detail = event.state, event.detail
            self.environment = event.environment or self.environment
            before, self.cases = self.cases, self._order()
            return Change(rows=before != self.cases)
        return Change()

    @property
    def interpreted(self) -> bool:
        """Triton without a GPU: checked, not timed. Until the worker is up, the last run's value."""
        if self.environment is None:
            last = self.summary
            return last.environment.interpreted if last else self.task.device == "cuda" and not self.gpu_here
        return case_choice.is_interpreted(self.task, self.environment)

    @property
    def source(self) -> str:
        """Hash of the last run's source; empty before the first run."""
        if self.last_run is not None:
            return self.last_run.source
        return self.summary.source if self.summary is not None else ""

    @property
    def unusable(self) -> str:
        """Why no worker can start; empty otherwise."""
        return self.worker_detail if self.worker == "lost" else ""

    @property
    def shows_the_save_before(self) -> bool:
        """The headline belongs to an earlier run, or to another baseline than the last run's."""
        shown, last = self.summary, self.last_run
        if shown is None:
            return False
        if last is None or self.run is not None or self.failure is not None:
            return True
        return (last.source, last.baseline) != (shown.source, shown.baseline)

    @property
    def _none_is_fresh(self) -> bool:
        """The newest files could not start a run: the last results belong to older ones."""
        return self.failure is not None and not self.failure.run

    def _is_fresh(self, case_id: str) -> bool:
        return case_id in self._fresh and not self._none_is_fresh

    def row(self, case: Case) -> Row:
        return Row(case, self._results.get(case.id), self._is_fresh(case.id), self._before.get(case.id))

    def rows(self) -> list[Row]:
        return [self.row(case) for case in self.cases]

    def label(self, case_id: str) -> str:
        return next((case.label for case in self.task.cases if case.id == case_id), case_id)

    def failed_rows(self) -> list[Row]:
        """Failed rows of the newest source, in table order."""
        return [row for row in self._fresh_rows() if row.result is not None and row.result.failed]

    def invalid_rows(self) -> list[Row]:
        """Rows of the newest source with a finding that disqualifies them, in table order."""
        return [row for row in self._fresh_rows() if row.result is not None and row.result.disqualifying]

    def _fresh_rows(self) -> list[Row]:
        return [] if self._none_is_fresh else [self.row(case) for case in self.cases if case.id in self._fresh]

    def landed(self) -> list[CaseResult]:
        """Results of the newest source, rows and grid."""
        return [result for case_id, result in self._results.items() if self._is_fresh(case_id)]

    def verdicts(self, word: str) -> int:
        return sum(1 for result in self.landed() if result.verdict == word)

    def grid(self) -> GridCount | None:
        """Counts of the check cases of this run, or else the last; None if there are none."""
        known = {case.id for case in self.task.cases if case.kind == "check"}
        if not known:
            return None
        fresh = any(map(self._is_fresh, known))
        asked = known.intersection(self.last_run.cases) if fresh and self.last_run else self._last_draw(known)
        results = [
            self._results[name] for name in asked if name in self._results and (not fresh or name in self._fresh)
        ]
        right = sum(1 for result in results if result.status in ("ok", "interpreted"))
        skipped = sum(1 for result in results if result.status == "skipped")
        return GridCount(len(asked), len(results), right, skipped, fresh) if asked else None

    def _last_draw(self, known: set[str]) -> set[str]:
        """Check cases of the last run that landed any: each run draws its own, and a count covers one run."""
        runs = (self._fresh, self._landed_last, self._results)
        return next((drawn for run in runs if (drawn := known.intersection(run))), set())

    def _land(self, event: CaseLanded) -> Change:
        result = event.result
        if result.id not in self._fresh:  # a row lands again after its slow checks
            self._before.pop(result.id, None)
            if result.id in self._to_beat:
                self._before[result.id] = self._to_beat[result.id]
        self._results[result.id] = result
        self._fresh.add(result.id)
        order = self._order()
        moved = order != self.cases
        self.cases = order
        return Change(frozenset({result.id}), rows=moved)

    def _end(self, event: RunFinished | BuildFailed | RunCancelled) -> Change:
        self.run = self.progress = None
        if isinstance(event, RunFinished):
            self.summary = event.summary
            self._forget_older_draws()
            self._finished = dict(self._results)
            self.new_series = False
            # Only a run reports its condition.
            self.environment = event.summary.environment
        elif isinstance(event, BuildFailed):
            self.failure = event
            if self.worker == "starting" and not event.run:  # it failed before a worker was started
                self.worker = "lost"
        else:
            self.cancelled = event.reason
        return Change(rows=True)

    def _forget_older_draws(self) -> None:
        """Check cases that this run did not draw: a failure there belongs to an older source."""
        drawn = {case.id for case in self.task.cases if case.kind == "check"}
        self._results = {name: row for name, row in self._results.items() if name in self._fresh or name not in drawn}
        self.cases = self._order()

    def _confirm(self, event: Confirmed) -> Change:
        if self.summary is not None and self.summary.run == event.run:
            self.summary = replace(self.summary, confirmed=event.confirmed)
            self.confirmation = event
        return Change()

    def _change_task(self, event: TaskLoaded) -> Change:
        self.task = event.task
        if self._none_is_fresh:  # the files are readable again
            self.failure = None
        if event.series:
            self.new_series = True
            self.summary = None
            self._results.clear()
            self._fresh, self._landed_last = set(), set()
            self._finished, self._to_beat, self._before = {}, {}, {}
        self.cases = self._order()
        return Change(rows=True)

    def _order(self) -> tuple[Case, ...]:
        """Headline rows, other timed rows, smoke rows, then failed check cases, each in the task's order.

        Cases that cannot run here come last: timed cases under the Triton interpreter, and skipped cases.
        """
        interpreted = self.interpreted

        def place(case: Case) -> tuple[bool, int]:
            last = (interpreted and case.kind == "case") or self._is_left_out(case.id)
            return last, 0 if case.headline else _KIND_ORDER[case.kind]

        return tuple(sorted((case for case in self.task.cases if self._has_row(case)), key=place))

    def _is_left_out(self, case_id: str) -> bool:
        """Skipped on its own account; a row skipped because of another row keeps its place."""
        result = self._results.get(case_id)
        return result is not None and result.status == "skipped" and result.reason not in AFTER_ANOTHER

    def _has_row(self, case: Case) -> bool:
        return case.kind != "check" or self._is_failed(case.id)

    def _is_failed(self, case_id: str) -> bool:
        result = self._results.get(case_id)
        return result is not None and result.failed
