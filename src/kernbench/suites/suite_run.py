"""`kernbench suite`: many problems, one after the other, unattended; a crash, a hang or a kill costs one of them.

All share one worker, which is replaced when it is lost. Each problem is a task in the suite's folder, with its runs in
its own `.kernbench`; a line per problem in `suite.jsonl` says how it went, and `--resume` goes on after the last.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.shared import stats, taskfile
from harness.shared.errors import UserError
from harness.shared.results import CaseResult, Finding
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.engine.jobs import Options, SharedWorker
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, Event, RunFinished
from kernbench.task import lookup

RESULTS = "suite.jsonl"
LOST = "lost"
"""The status of a problem whose machine was lost: it says nothing about the problem."""


@dataclass(frozen=True)
class Outcome:
    """How one problem went: its worst status, and the times of its only or largest row."""

    name: str
    status: str
    """ok, wrong, crashed and so on; `disqualified` if right but with a finding that disqualifies; `refused` if nothing
    was run; `lost` if the machines that should have run it were lost."""
    detail: str = ""
    speedup: float | None = None
    verdict: str | None = None
    baseline_us: float | None = None
    solution_us: float | None = None
    roofline: float | None = None
    findings: tuple[str, ...] = ()
    seconds: float = 0.0
    node: str = ""
    """The machine that ran it."""
    device: str = ""
    """Its GPU, or its processor."""
    uuid: str | None = None
    driver: str | None = None

    @property
    def is_right(self) -> bool:
        return self.status in ("ok", "interpreted")

    @property
    def word(self) -> str:
        """The result in a word."""
        return (self.verdict or self.status) if self.is_right else self.status

    @property
    def note(self) -> str:
        """What there is to say about it: the findings, or why it failed."""
        return ", ".join(self.findings) if self.is_right else self.detail

    @property
    def sol_score(self) -> float | None:
        """SOL-ExecBench's score: 1 at the speed of light, 0.5 at the baseline's."""
        if self.roofline is None or self.solution_us is None or self.baseline_us is None:
            return None
        light = min(self.roofline, 1.0) * self.solution_us
        if self.baseline_us < light * (1 + stats.MARGIN):  # nothing was left to gain
            return None if self.solution_us < light * (1 + stats.MARGIN) else 0.0
        return 1 / (1 + (self.solution_us - light) / (self.baseline_us - light))


class SuiteFile:
    """suite.jsonl: a line per problem, written as soon as its result is known."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / RESULTS

    def known(self) -> dict[str, Outcome]:
        """What an earlier run of this suite found; neither a line that a kill has cut off nor a lost problem counts."""
        found: dict[str, Outcome] = {}
        for line in self.path.read_text("utf-8", "replace").splitlines() if self.path.is_file() else ():
            try:
                data = json.loads(line)
                found[data["name"]] = outcome_of(data)
            except (ValueError, KeyError, TypeError):
                continue
        return {name: outcome for name, outcome in found.items() if outcome.status != LOST}

    def keep(self, outcome: Outcome) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if (size := file.seek(0, os.SEEK_END)) and file.seek(size - 1) >= 0 and file.read(1) != b"\n":
                file.write(b"\n")  # a kill cut off the line before
            file.write(json.dumps(asdict(outcome)).encode() + b"\n")


class Suite:
    """Runs the problems on this machine."""

    def __init__(self, file: SuiteFile, options: Options, budget_s: float | None = None) -> None:
        self._file, self._budget_s = file, budget_s
        self._worker = SharedWorker()
        self._options = unattended(options, self._worker)

    async def run(self, tasks: Mapping[str, Callable[[], Path]], tell: Callable[[Outcome], None]) -> None:
        """Runs every task, by name; the functions make their folders. Stops when the budget is spent."""
        began = time.monotonic()
        try:
            for name, make in tasks.items():
                if self._budget_s is not None and time.monotonic() - began > self._budget_s:
                    break
                try:
                    task = taskfile.load(make())
                except (UserError, OSError) as problem:
                    outcome = Outcome(name, "refused", str(problem))
                else:
                    outcome = await run_problem(name, task, self._options)
                self._file.keep(outcome)
                tell(outcome)
        finally:
            await self._worker.close()


def unattended(options: Options, worker: SharedWorker) -> Options:
    """The options of each problem: all of them share a worker, and nothing is done in idle time."""
    return replace(options, worker=worker, confirm=False, floors=False, standby=False)


async def run_problem(name: str, task: Task, options: Options, state: Path | None = None) -> Outcome:
    """Runs one task; its runs are kept in `state`, or in its own folder."""
    began = time.monotonic()
    said: list[BuildFailed | RunFinished] = []
    session = Session(task, lookup.state_dir(Path(task.folder), state), options)
    session.listen(lambda event: _listen(event, said))
    try:
        await session.run_once(iteration=False)
        rows = list(session.last_results().values())
    finally:
        await session.close()
    seconds, end = time.monotonic() - began, said[-1] if said else None
    if isinstance(end, BuildFailed):
        outcome = Outcome(name, end.status, end.message)
    elif end is None or not rows:
        outcome = Outcome(name, "refused", str(session.problem or "nothing was run"))
    else:
        outcome = summed_up(name, rows, end.summary.findings)
    return _placed(replace(outcome, seconds=seconds), session.environment)


def _placed(outcome: Outcome, where: Environment | None) -> Outcome:
    if where is None:
        return outcome
    return replace(outcome, node=where.host, device=where.device_name, uuid=where.uuid, driver=where.driver)


def outcome_of(data: Mapping[str, Any]) -> Outcome:
    """From a line of suite.jsonl; raises TypeError or KeyError if it is not one."""
    return Outcome(**{**data, "findings": tuple(data["findings"])})


def _listen(event: Event, said: list[BuildFailed | RunFinished]) -> None:
    if isinstance(event, BuildFailed | RunFinished):
        said.append(event)


def summed_up(name: str, rows: Iterable[CaseResult], about_run: Sequence[Finding]) -> Outcome:
    """The first row that failed, else a disqualified one, else the one with the longest time."""
    row = max(rows, key=lambda row: (row.failed, bool(row.disqualifying), row.baseline_us or 0.0))
    found_here = (*row.findings, *about_run)
    found: dict[str, Any] = {"speedup": row.speedup, "verdict": row.verdict, "roofline": row.roofline}
    found |= {"baseline_us": row.baseline_us, "solution_us": row.solution_us}
    names = tuple(dict.fromkeys(finding.name for finding in found_here))
    if not row.failed and (red := next((finding for finding in found_here if finding.disqualifying), None)):
        return Outcome(name, "disqualified", f"{red.name}: {red.help}", findings=names, **found)
    smaller = "; `--scale 1/8` makes it smaller" if row.reason in ("too_large", "out_of_memory") else ""
    return Outcome(name, row.status, f"{row.detail or ''}{smaller}", findings=names, **found)
