"""Work done while the session is idle, so that the next run is faster and its verdicts are more reliable.

In order: the step of a model that a key asked for, a spare worker with its rows, a second try of wrong rows in it, the
confirmation of a run that would be best, the process that compiles ahead, a second spare, an ncu on standby, and the
A/A floors of the current source. The session starts this when no job is left and wakes it when one
arrives; steps not begun by then wait for the next idle time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.shared.errors import UserError
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.engine.jobs import Job, Options
from kernbench.engine.model_steps import ModelSteps
from kernbench.engine.runner import Runner, RunOrder
from kernbench.events import Event, Notice
from kernbench.ncu.explainer import Explainer
from kernbench.task import case_choice
from kernbench.task.baseline import Baseline
from kernbench.task.snapshot import Source
from kernbench.worker import spares
from kernbench.worker.supervisor import Supervisor

CALM_S = 0.5
"""Seconds without a job before a second try or a confirmation takes a spare."""


@dataclass(frozen=True)
class Situation:
    """The session's state when it becomes idle."""

    task: Task
    source: Source | None
    """Of the last job."""
    environment: Environment | None
    baseline: Baseline

    def profiled_device(self) -> str | None:
        """The device to profile on; None if the task cannot be profiled or the device is not known yet."""
        if self.environment is None or self.task.device != "cuda":
            return None
        return self.environment.device

    def floors_order(self, options: Options) -> RunOrder | None:
        """A run that times the source again; None if it cannot be timed. Raises UserError if the baseline is gone."""
        task, source, environment = self.task, self.source, self.environment
        if source is None or environment is None or case_choice.is_interpreted(task, environment):
            return None
        return RunOrder(
            task=task,
            source=source,
            environment=environment,
            baseline=self.baseline.of(source.folder),
            reason="key",
            at=time.monotonic(),
            iteration=False,
            budget_ms=options.budget_ms,
            condition=options.condition,
        )


@dataclass(frozen=True)
class IdleWork:
    options: Options
    supervisor: Supervisor
    runner: Runner
    explainer: Explainer
    emit: Callable[[Event], None]
    models: ModelSteps
    recalled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once runs of earlier sessions are in the line for their confirmation."""

    @property
    def wake(self) -> asyncio.Event:
        """Set when a job arrives."""
        return self.models.wake

    async def until_woken(self, situation: Situation) -> None:
        """Works until a job arrives, then cancels the step in progress."""
        waiting = asyncio.create_task(self.wake.wait())
        idle_work = asyncio.create_task(self._do(situation))
        try:
            await waiting
            self.supervisor.cancel()
            await idle_work
        finally:
            for task in (waiting, idle_work):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(waiting, idle_work, return_exceptions=True)

    async def _do(self, situation: Situation) -> None:
        """Turns a failure into a notice: saves are served all the same."""
        try:
            await self._prepare(situation)
        except (UserError, OSError) as problem:
            self.emit(Notice(str(problem), "warning"))

    async def _prepare(self, situation: Situation) -> None:
        began = time.monotonic()
        if not self.supervisor.is_gpu_lent:  # two programs that time on one GPU disturb each other
            await self.models.carry_out(situation.task, situation.environment)
        order = situation.floors_order(self.options)
        if not await self._prepare_spares(order, 1) and not await self._prepare_again(order):
            return
        if not await self._is_calm(began):
            return
        took_spare = await self.runner.second_try.carry_out(self.wake.is_set)
        if took_spare and not await self._prepare_spares(order, 1):
            return
        if self.options.confirm and not await self._confirm(order):
            return
        await self.supervisor.prepare_builder(self.wake.is_set)
        if not await self._prepare_spares(order, spares.MOST):
            return
        if self.options.standby and (device := situation.profiled_device()) is not None:
            await self.explainer.prepare(device, self.wake)
        if self.options.floors and order is not None:
            await self._measure_floors(order)

    async def _is_calm(self, began: float) -> bool:
        """Whether no job has followed for a moment: one that comes later costs a worker that has just been warmed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(began + CALM_S - time.monotonic()):
                await self.wake.wait()
        return not self.wake.is_set()

    async def _prepare_again(self, order: RunOrder | None) -> bool:
        """After a spare was lost: a confirmation cannot wait for the next idle time, which may not come."""
        for _ in range(spares.TRIES):
            if self.wake.is_set() or not (self.supervisor.pids and self.runner.confirmations.is_waiting):
                return False
            if await self._prepare_spares(order, 1):
                return True
        return False

    async def _confirm(self, order: RunOrder | None) -> bool:
        """Confirms every run that would be best, each in a new worker; False if a job arrives first, or if the workers
        made room for a profile."""
        if order is not None and not self.recalled.is_set():
            await self.runner.recall(order)
            self.recalled.set()
        while await self.runner.confirmations.carry_out(self.wake.is_set):
            if not await self._prepare_spares(order, 1):
                return False
        return bool(self.supervisor.pids) and not self.wake.is_set()

    async def confirm_now(self) -> None:
        """The same for a command that ends with its run, with one spare at a time; `break_off` ends it."""
        while self.runner.confirmations.is_waiting:
            await self.supervisor.ready()
            if self.supervisor.spares.lacks_one:
                await self.supervisor.prepare_spare()
            has_spare = await self._spares_are("warm" if self.runner.confirmations.needs_compiler else "ready")
            if not has_spare or not await self.runner.confirmations.carry_out(self.wake.is_set):
                break
        if self.runner.confirmations.is_waiting and not self.wake.is_set():
            self.emit(Notice("the run stays `best?`: no new worker could start to confirm it", "warning"))

    def break_off(self) -> None:
        """Ends a command's run or confirmation, whichever step it is at, if called until it has ended: between two
        steps there is nothing to cancel. The worker stays, and so does the confirmation's place in the line."""
        self.wake.set()
        self.supervisor.cancel()

    async def confirm_overdue(self, job: Job) -> None:
        """Before a save: confirms a run that saves have kept waiting."""
        if self.options.confirm and job.reason == "save" and self.runner.confirmations.is_overdue:
            await self.runner.confirmations.come_first()

    async def _prepare_spares(self, order: RunOrder | None, count: int) -> bool:
        """So many, one after the other, each with its rows; False if a job arrives first or one of them is lost. A
        single one may have the compiler still to load, unless the baseline needs it."""
        is_compiled = order is not None and order.baseline.name == "compile"
        needs_compiler = is_compiled or self.runner.confirmations.needs_compiler
        for _ in range(count):
            if count > 1 or self.supervisor.spares.lacks_one:
                await self.supervisor.prepare_spare()
            if not await self._spares_are("warm" if needs_compiler or count > 1 else "ready"):
                return False
            if order is not None and is_compiled:
                await self.runner.prepare_rows(order)
                if not await self._spares_are("is_prepared"):
                    return False
            if not self.supervisor.spares.may_start:
                break
        return bool(self.supervisor.pids)  # none: they made room for a profile and need that room again

    async def _spares_are(self, state: str) -> bool:
        """Waits for this state of all spares; False if a job arrives first or one of them is lost."""
        while not self.supervisor.spares.all_are(state):
            if self.wake.is_set() or self.supervisor.spares.any_lost:
                return False
            await asyncio.sleep(0.05)
        return not self.wake.is_set()

    async def _measure_floors(self, order: RunOrder) -> None:
        for case in order.task.timed:
            if self.wake.is_set():
                return
            if self.runner.wants_floor(order, case.id) and not await self.runner.measure_floor(order, case.id):
                return
