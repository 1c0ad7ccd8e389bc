"""Profiles one case: takes the GPU slot, asks the profiler and turns the outcome into one event.

A run in progress pauses between two rows meanwhile: nothing is profiled while something is timed. It never raises: the
outcome is a ProfileReady, or a ProfileFailed with one sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench.diagnosis.counters import Profile, TraceRow
from kernbench.diagnosis.rules import diagnose
from kernbench.events import Event, LogLine, ProfileFailed, ProfileReady, ProfileStarted
from kernbench.log.logbook import Logbook
from kernbench.ncu import refusals
from kernbench.ncu.profiler import NoProfile, Profiler, ProfileRequest, sides
from kernbench.task.baseline import Baseline
from kernbench.worker.supervisor import Supervisor

Answer = ProfileReady | ProfileFailed


class Explainer:
    def __init__(
        self,
        supervisor: Supervisor,
        logbook: Logbook,
        emit: Callable[[Event], None],
        harness: Path | None = None,
        ncu: str | None = None,
    ) -> None:
        self._supervisor, self._logbook, self._emit = supervisor, logbook, emit
        self.profiler = Profiler(logbook.state, supervisor.python, harness, ncu, lambda line: emit(LogLine(line)))
        self._one_at_a_time = asyncio.Lock()

    async def prepare(self, device: str, wake: asyncio.Event) -> None:
        """Start a standby while nothing is timed or profiled; stop at `wake`."""
        if not device.startswith("cuda") or self._one_at_a_time.locked():  # the end of a profile wakes idle work again
            return
        async with self._one_at_a_time:
            await self.profiler.prepare(device)
        while self.profiler.starting and not wake.is_set():
            await asyncio.sleep(0.05)

    async def explain(
        self, task: Task, case: str, against: str | None, full: bool, baseline: Baseline, device: str
    ) -> Answer:
        began = time.monotonic()
        async with self._one_at_a_time:
            self._emit(ProfileStarted(case, full, self.profiler.is_warm(full)))
            await self._supervisor.lend_gpu()
            try:
                answer = await self._answer(task, case, against, full, baseline, device, began)
            finally:
                self._supervisor.take_back_gpu()
        self._emit(answer)
        return answer

    async def trace(self, task: Task, case: str, baseline: Baseline, device: str, path: Path) -> tuple[TraceRow, ...]:
        """Run torch's profiler on one call, holding the GPU slot; raises a UserError."""
        source = await self._logbook.in_thread(self._logbook.take_source)
        _check(task, case)
        wanted = ProfileRequest(task, case, sides(task, source, None, baseline, self._logbook), device)
        async with self._one_at_a_time:
            await self._supervisor.lend_gpu()
            try:
                return await self.profiler.trace(wanted, path)
            finally:
                self._supervisor.take_back_gpu()

    async def _answer(
        self, task: Task, case: str, against: str | None, full: bool, baseline: Baseline, device: str, began: float
    ) -> Answer:
        try:
            source = await self._logbook.in_thread(self._logbook.take_source)
            _check(task, case)
            if device == "cpu":
                raise NoProfile(refusals.refuse("on_cpu", task=task.name))
            wanted = sides(task, source, against, baseline, self._logbook)
            row = self._logbook.journal.last_cases.get(case)
            bound = row.bound if row is not None else None
            found = await self._taken(ProfileRequest(task, case, wanted, device, full, bound))
        except NoProfile as problem:
            return ProfileFailed(case, str(problem), problem.where, problem.known, problem.code)
        except UserError as problem:
            code = problem.code if isinstance(problem, refusals.Refused) else None
            return ProfileFailed(case, str(problem), code=code)
        except OSError as problem:
            return ProfileFailed(case, f"{problem.filename or self._logbook.state}: {problem.strerror}")
        with contextlib.suppress(UserError, OSError):
            await self._logbook.in_thread(self._logbook.add_evidence, task, source.sha)
        other = found[1] if len(found) > 1 else None
        return ProfileReady(case, found[0], diagnose(found[0]), other, time.monotonic() - began)

    async def _taken(self, wanted: ProfileRequest) -> list[Profile]:
        """On a GPU in exclusive-process mode the worker exits first, unless it is in the middle of a run."""
        try:
            return await self.profiler.profile(wanted)
        except NoProfile as problem:
            if problem.code != "exclusive" or not self._supervisor.pids or self._supervisor.busy:
                raise
        await self._supervisor.close()
        return await self.profiler.profile(wanted)


def _check(task: Task, case: str) -> None:
    if all(item.id != case for item in task.cases):
        raise NoProfile(refusals.refuse("no_case", task=task.name, case=case, known=task.cases[0].id))
