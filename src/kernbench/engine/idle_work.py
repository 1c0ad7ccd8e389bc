"""What is done while nobody waits: it makes the next run quicker and truer.

First the spare worker, then the process that compiles ahead, a standing-by ncu, and the A/A floors of the present
source. The session goes to its chores when no job is left and wakes them when one comes; what is not begun then is left
for the next time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from harness.shared.errors import UserError
from kernbench.engine.explainer import Explainer
from kernbench.engine.jobs import Options
from kernbench.engine.runner import Order, Runner
from kernbench.events import Event, Notice
from kernbench.worker.supervisor import Supervisor


@dataclass(frozen=True)
class Chores:
    options: Options
    supervisor: Supervisor
    runner: Runner
    explainer: Explainer
    emit: Callable[[Event], None]
    wake: asyncio.Event
    """Set when there is a job."""
    profiled: Callable[[], str | None]
    """The device that a profile would be taken on, where the task can have one."""
    timed: Callable[[], Order | None]
    """What times the present source, where it can be timed."""

    async def until_woken(self) -> None:
        """Waits for work; what is under way then is cancelled."""
        waiting = asyncio.create_task(self.wake.wait())
        chores = asyncio.create_task(self._do())
        try:
            await waiting
            self.supervisor.cancel()
            await chores
        finally:
            for task in (waiting, chores):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(waiting, chores, return_exceptions=True)

    async def _do(self) -> None:
        """When something cannot be done, a save is still served."""
        try:
            await self._prepare()
        except (UserError, OSError) as problem:
            self.emit(Notice(str(problem), "warning"))

    async def _prepare(self) -> None:
        await self.supervisor.prepare_spare()
        if not await self._spare_is(lambda: self.supervisor.spare_ready):
            return
        await self.supervisor.prepare_builder(self.wake.is_set)
        if not await self._spare_is(lambda: self.supervisor.spare_warm):  # what follows needs the GPU
            return
        if self.options.standby and (device := self.profiled()) is not None:
            await self.explainer.prepare(device, self.wake)
        if self.options.floors and (order := self.timed()) is not None:
            await self._measure_floors(order)

    async def _spare_is(self, so_far: Callable[[], bool]) -> bool:
        """Waits for it; False where a job comes first, or the spare is no more."""
        while self.supervisor.may_have_spare and not so_far():
            if self.wake.is_set() or len(self.supervisor.pids) < 2:
                return False
            await asyncio.sleep(0.05)
        return bool(self.supervisor.pids)  # what was sent away to make room must find it again

    async def _measure_floors(self, order: Order) -> None:
        for case in order.task.timed:
            if self.wake.is_set():
                return
            if self.runner.wants_floor(order, case.id) and not await self.runner.measure_floor(order, case.id):
                return
