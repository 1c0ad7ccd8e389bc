"""Runs the tasks of a gate: each against its solution at the other revision, in turns; doubtful rows once more.

The second try has a new worker and a larger budget: what the memory layout of one process or a busy moment did to a row
does not repeat. Runs are stored apart from the task's own, so they are not in its log and not timed against its best.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.task import Task
from harness.shared.taskfile.values import TaskError
from kernbench import render
from kernbench.engine.jobs import Options, SharedWorker
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, CaseLanded, Event, Notice, RunFinished
from kernbench.gate.gate_rows import GateRow, Judge, TaskOutcome
from kernbench.machine.git_folder import NotThere
from kernbench.task import case_choice, lookup

STATE = "gate"
"""In the task's state folder."""
MORE = 4.0
"""Factor on the budget of a second try."""

INTERPRETED = "no GPU here: Triton's kernels are interpreted, which checks their results and cannot time them"


@dataclass
class _Heard:
    """What a session said during a run."""

    rows: dict[str, CaseResult] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    failure: BuildFailed | None = None
    finished: RunFinished | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, CaseLanded):
            self.rows[event.result.id] = event.result
        elif isinstance(event, BuildFailed):
            self.failure = event
        elif isinstance(event, RunFinished):
            self.finished = event
        elif isinstance(event, Notice):
            self.notes[event.text] = None


class Gate:
    def __init__(
        self, against: str, options: Options, tolerance: float | None, python: str = "", state: Path | None = None
    ) -> None:
        """`python` names the interpreter in the report, if there are several; `state` is a folder for all runs."""
        self._judge, self._python, self._state = Judge(tolerance), python, state
        self._options = replace(options, baseline=against, confirm=False, floors=False, standby=False, has_keys=False)

    async def run(self, folders: Iterable[Path], tell: Callable[[TaskOutcome], None]) -> list[TaskOutcome]:
        """Runs every task, by kind of worker; raises Unusable if there is no worker for one."""
        tasks, outcomes = [], []
        for folder in folders:
            try:
                tasks.append(taskfile.load(folder))
            except TaskError as problem:
                broken = GateRow("task.toml", "task.toml", "wrong", why=str(problem))
                outcomes.append(TaskOutcome(folder.name, (broken,), python=self._python))
                tell(outcomes[-1])
        chosen = [task for task in tasks if case_choice.matching(task, self._options.case)]
        if tasks and not chosen:
            raise UserError(f"no case of {fmt.joined([task.name for task in tasks])} matches {self._options.case!r}")
        for _, alike in groupby(sorted(chosen, key=_worker_of), _worker_of):
            outcomes += await self._run_alike(list(alike), tell)
        return outcomes

    async def _run_alike(self, tasks: Sequence[Task], tell: Callable[[TaskOutcome], None]) -> list[TaskOutcome]:
        """Tasks that can share a worker; then their doubtful rows, in another."""
        found: list[TaskOutcome] = []
        worker = SharedWorker()
        try:
            for task in tasks:
                found.append(await self._outcome(task, replace(self._options, worker=worker)))
                if not any(row.is_doubtful for row in found[-1].rows):
                    tell(found[-1])
        finally:
            await worker.close()
        doubtful = [place for place, outcome in enumerate(found) if any(row.is_doubtful for row in outcome.rows)]
        worker = SharedWorker()
        more = replace(self._options, worker=worker, budget_ms=self._options.budget_ms * MORE)
        try:
            for place in doubtful:
                rows = [await self._again(tasks[place], row, more) for row in found[place].rows]
                found[place] = replace(found[place], rows=tuple(rows))
                tell(found[place])
        finally:
            await worker.close()
        return found

    async def _outcome(self, task: Task, options: Options) -> TaskOutcome:
        began = time.monotonic()
        try:
            session, judge = self._session(task, options), self._judge
        except NotThere:
            session, judge = self._session(task, replace(options, baseline=None)), replace(self._judge, compares=False)
        heard = await _heard(session)
        rows = [judge.row(case, heard.rows[case.id]) for case in task.cases if case.id in heard.rows]
        is_unchecked = all(row.word == "not timed" for row in rows)
        rows = [replace(row, word="cannot tell") for row in rows] if is_unchecked else rows
        if any(row.status == "interpreted" for row in heard.rows.values()):
            heard.notes[INTERPRETED] = None
        about = session.environment
        return TaskOutcome(
            task=Path(task.folder).name,
            rows=(*_of_the_run(heard), *rows),
            notes=tuple(heard.notes),
            device=about.device_name if about is not None else "",
            python=self._python,
            seconds=time.monotonic() - began,
            is_new=not judge.compares,
        )

    async def _again(self, task: Task, row: GateRow, options: Options) -> GateRow:
        if not row.is_doubtful:
            return row
        heard = await _heard(self._session(task, replace(options, case=row.case)))
        result = heard.rows.get(row.case)
        failed = next(iter(_of_the_run(heard)), None)
        return failed or (self._judge.row(task.case(row.case), result, tries=2) if result else row)

    def _session(self, task: Task, options: Options) -> Session:
        folder = Path(task.folder)
        state = self._state.resolve() / folder.name if self._state else lookup.state_dir(folder) / STATE
        return Session(task, lookup.state_dir(folder, state), options)


async def _heard(session: Session) -> _Heard:
    heard = _Heard()
    session.listen(heard)
    try:
        await session.run_once(iteration=False)
    finally:
        await session.close()
    if session.problem is not None:
        raise session.problem
    if heard.failure is None and heard.finished is None:
        raise UserError(f"{session.task.name} was not run: {'; '.join(heard.notes) or 'it was cancelled'}")
    return heard


def _of_the_run(heard: _Heard) -> list[GateRow]:
    """What speaks against the source as a whole."""
    if heard.failure is not None:
        said = render.place(heard.failure.where, heard.failure.message)
        return [GateRow("build", "build", "wrong", why=said)]
    findings = heard.finished.summary.findings if heard.finished is not None else ()
    return [GateRow(found.name, found.name, "wrong", why=found.help) for found in findings if found.disqualifying]


def _worker_of(task: Task) -> tuple[str, int]:
    """Tasks with the same can share a worker."""
    return task.device, task.threads if task.device == "cpu" else 0
