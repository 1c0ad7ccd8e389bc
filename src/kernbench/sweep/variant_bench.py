"""Runs variants in one worker: each against an opponent, in turns, with the rows, the budget and the checks asked for.

The runs are stored in the sweep's own folder, so they are not in the task's log; what is compiled is in the task's, so
that baselines are compiled once.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.shared.lines import to_dict
from harness.shared.results import CaseResult, Ratio
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench import render
from kernbench.engine import revision_baseline
from kernbench.engine.jobs import Options, supervisor_for
from kernbench.engine.runner import Runner, RunOrder, RunOutcome, RunPlan
from kernbench.events import BuildFailed, CaseLanded, Event, Summary
from kernbench.log.logbook import Logbook
from kernbench.log.runs import comparison
from kernbench.sweep.ahead import Ahead
from kernbench.sweep.trial import NEEDS_GPU, Measured, Trial
from kernbench.sweep.variants import Variant
from kernbench.task import case_choice
from kernbench.task.baseline import Baseline
from kernbench.worker.process import Unusable, harness_folder


class VariantBench:
    def __init__(self, task: Task, state: Path, folder: Path, options: Options, builds_ahead: bool = True) -> None:
        """`state` is the task's, `folder` the sweep's."""
        self.task, self._state, self._options = task, state, options
        self._logbook = Logbook(Path(task.folder), folder, task, options.condition)
        self._supervisor = supervisor_for(task, options, self._hear)
        self._ahead = Ahead(self._supervisor.python, options.harness or harness_folder())
        if builds_ahead:
            self._supervisor.builder = self._ahead
        self._runner = Runner(self._supervisor, self._logbook, self._hear)
        self._rows: dict[str, CaseResult] = {}
        self.environment: Environment | None = None
        self.usual: dict[str, float] = {}
        """Times of the source as it is, by row."""

    async def ready(self) -> Environment:
        """Raises Unusable if nothing can be timed here."""
        self.environment = environment = await self._supervisor.ready()
        if case_choice.is_interpreted(self.task, environment):
            said = NEEDS_GPU.format(self.task.name)
            raise Unusable("no_device", f"{said}; `kernbench sweep softmax_host --set ...` runs anywhere")
        return environment

    @property
    def device(self) -> str:
        return self.environment.device_name if self.environment is not None else ""

    async def build_ahead(self, variants: Sequence[Variant], trial: Trial) -> None:
        for variant in variants:
            plan = await self._plan(variant, trial)
            await self._ahead.add(variant.name, {"request": "run", **to_dict(plan.request)})

    async def measure_all(self, variants: Sequence[Variant], trial: Trial) -> AsyncIterator[tuple[Variant, Measured]]:
        """One after another."""
        await self.build_ahead(variants, trial)
        for variant in variants:
            yield variant, await self.measure(variant, trial)

    async def measure(self, variant: Variant, trial: Trial) -> Measured:
        await self._ahead.built(variant.name)
        began, self._rows = time.monotonic(), {}
        plan = await self._plan(variant, trial)
        outcome = await self._runner.run(plan)
        return replace(self._measured(outcome), seconds=time.monotonic() - began)

    async def close(self) -> None:
        await self._ahead.close()
        await self._logbook.in_thread.close()

    def _hear(self, event: Event) -> None:
        if isinstance(event, CaseLanded):
            self._rows[event.result.id] = event.result

    async def _plan(self, variant: Variant, trial: Trial) -> RunPlan:
        return await self._logbook.in_thread(self._planned, variant, trial, await self.ready())

    def _planned(self, variant: Variant, trial: Trial, environment: Environment) -> RunPlan:
        stored = self._logbook.state
        if trial.opponent is None:
            text = self._options.baseline or self.task.baseline
            baseline = revision_baseline.parse(text, self.task, self._state)
        else:
            other = trial.opponent.stored(stored, self.task)
            baseline = Baseline(trial.opponent.name, other.folder / "solution.py")
        order = RunOrder(
            task=self.task,
            source=variant.stored(stored, self.task),
            environment=environment,
            baseline=baseline,
            reason="command",
            at=time.monotonic(),
            iteration=False,
            case=self._options.case,
            grid=self._options.grid,
            budget_ms=trial.budget_ms,
            condition=self._options.condition,
            quick=trial.rows is not None,
        )
        plan = self._runner.plan(order)
        request = replace(plan.request, best=None, build=str(self._state / "build"), controls=False)
        request = replace(request, cases=trial.rows) if trial.rows is not None else request
        return replace(plan, request=request, best=None)

    def _measured(self, outcome: RunOutcome) -> Measured:
        if isinstance(outcome, BuildFailed):
            return Measured(outcome.status, render.place(outcome.where, outcome.message))
        if not isinstance(outcome, Summary):
            return Measured("cancelled", outcome.reason)
        rows = [self._rows[case.id] for case in self.task.cases if case.id in self._rows]
        if failed := next((row for row in rows if row.failed), None):
            said = render.place(failed.where, failed.detail or "")
            return Measured(failed.status, f"{self.task.case(failed.id).label}: {said}")
        found = [*outcome.findings, *(finding for row in rows for finding in row.findings)]
        if red := next((finding for finding in found if finding.disqualifying), None):
            return Measured("disqualified", f"{red.name}: {red.help}")
        times = {row.id: row.solution_us for row in rows if row.solution_us is not None}
        if not times:
            return Measured("not timed", next((row.detail for row in rows if row.detail), "no row was timed"))
        counted = {name: us for name, us in times.items() if self.task.case(name).headline} or times
        ratio = comparison.means(self.task, self._rows)[0]
        if ratio is not None:
            return Measured("ok", ratio=ratio, times=tuple(counted.items()))
        why = next((row.detail for row in rows if row.detail), "")
        return Measured("ok", f"timed alone: {why}", self.apart(counted), True, tuple(counted.items()))

    def apart(self, times: dict[str, float]) -> Ratio | None:
        """By the usual times, where the opponent cannot be loaded next to the variant."""
        shared = [self.usual[name] / us for name, us in times.items() if name in self.usual]
        if not shared:
            return None
        mean = math.exp(sum(map(math.log, shared)) / len(shared))
        return Ratio(mean, mean, mean, "unclear")
