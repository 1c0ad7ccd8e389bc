"""`kernbench suite`: many problems, one after the other, unattended; a crash, a hang or a kill costs one of them.

All share one worker, which is replaced when it is lost. Each problem is a task in the suite's folder, with its runs in
its own `.kernbench`; a line per problem in `suite.jsonl` says how it went, and `--resume` goes on after the last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.results import CaseResult, Finding
from kernbench.engine.jobs import Options, SharedWorker
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, Event, RunFinished
from kernbench.task import lookup

RESULTS = "suite.jsonl"


@dataclass(frozen=True)
class Outcome:
    """How one problem went: its worst status, and the times of its only or largest row."""

    name: str
    status: str
    """ok, wrong, crashed and so on; `disqualified` if right but with a finding that disqualifies; `refused` if nothing
    was run."""
    detail: str = ""
    speedup: float | None = None
    verdict: str | None = None
    baseline_us: float | None = None
    solution_us: float | None = None
    roofline: float | None = None
    findings: tuple[str, ...] = ()
    seconds: float = 0.0

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
        if self.baseline_us <= light:
            return None
        return 1 / (1 + (self.solution_us - light) / (self.baseline_us - light))


class Suite:
    def __init__(self, folder: Path, options: Options, budget_s: float | None = None) -> None:
        self.folder, self._budget_s = folder, budget_s
        self._worker = SharedWorker()
        self._options = replace(options, worker=self._worker, confirm=False, floors=False, standby=False)

    @property
    def path(self) -> Path:
        return self.folder / RESULTS

    def known(self) -> dict[str, Outcome]:
        """What an earlier run of this suite found; a line that a kill has cut off does not count."""
        found: dict[str, Outcome] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else ():
            try:
                data = json.loads(line)
                found[data["name"]] = Outcome(**{**data, "findings": tuple(data["findings"])})
            except (ValueError, KeyError, TypeError):
                continue
        return found

    async def run(self, tasks: Mapping[str, Callable[[], Path]], tell: Callable[[Outcome], None]) -> None:
        """Runs every task, by name; the functions make their folders. Stops when the budget is spent."""
        began = time.monotonic()
        try:
            for name, make in tasks.items():
                if self._budget_s is not None and time.monotonic() - began > self._budget_s:
                    break
                outcome = await self._outcome(name, make)
                self._keep(outcome)
                tell(outcome)
        finally:
            await self._worker.close()

    def _keep(self, outcome: Outcome) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    async def _outcome(self, name: str, make: Callable[[], Path]) -> Outcome:
        began = time.monotonic()
        try:
            task = taskfile.load(make())
        except (UserError, OSError) as problem:
            return Outcome(name, "refused", str(problem))
        said: list[BuildFailed | RunFinished] = []
        session = Session(task, lookup.state_dir(Path(task.folder)), self._options)
        session.listen(lambda event: _listen(event, said))
        try:
            await session.run_once(iteration=False)
            rows = list(session.last_results().values())
        finally:
            await session.close()
        seconds = time.monotonic() - began
        end = said[-1] if said else None
        if isinstance(end, BuildFailed):
            return Outcome(name, end.status, end.message, seconds=seconds)
        if not rows:
            return Outcome(name, "refused", str(session.problem or "nothing was run"), seconds=seconds)
        return summed_up(name, rows, end.summary.findings if end else (), seconds)


def _listen(event: Event, said: list[BuildFailed | RunFinished]) -> None:
    if isinstance(event, BuildFailed | RunFinished):
        said.append(event)


def summed_up(name: str, rows: Iterable[CaseResult], about_run: Sequence[Finding], seconds: float) -> Outcome:
    """The first row that failed, else a disqualified one, else the one with the longest time."""
    row = max(rows, key=lambda row: (row.failed, bool(row.disqualifying), row.baseline_us or 0.0))
    found_here = (*row.findings, *about_run)
    found: dict[str, Any] = {"speedup": row.speedup, "verdict": row.verdict, "roofline": row.roofline}
    found |= {"baseline_us": row.baseline_us, "solution_us": row.solution_us}
    names = tuple(dict.fromkeys(finding.name for finding in found_here))
    if not row.failed and (red := next((finding for finding in found_here if finding.disqualifying), None)):
        return Outcome(name, "disqualified", f"{red.name}: {red.help}", findings=names, seconds=seconds, **found)
    smaller = "; `--scale 1/8` makes it smaller" if row.reason in ("too_large", "out_of_memory") else ""
    return Outcome(name, row.status, f"{row.detail or ''}{smaller}", findings=names, seconds=seconds, **found)
