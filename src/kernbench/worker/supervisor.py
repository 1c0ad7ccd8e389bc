"""The worker and its spares: one conversation at a time, deadlines, and a replacement that is already warm.

`talk` sends one request and yields the worker's messages until the run ends; a worker that dies, or exceeds the
deadline of the step it announced, ends the conversation with a `WorkerLost`, and a spare takes its place.
`lend_gpu` gives the GPU to another process: the run in progress pauses between two rows, and none begins until
`take_back_gpu`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.codes import CUDA_ERROR_EXIT
from harness.shared.run_request import Environment
from kernbench import render
from kernbench.events import Event, LogLine, Notice, WorkerChanged
from kernbench.machine import native_stack
from kernbench.worker.deadlines import Deadlines, compiler_below
from kernbench.worker.judge import Judge, JudgeLost
from kernbench.worker.precompiler import Precompiler
from kernbench.worker.process import ChildProcess, Unusable, WorkerLost, exit_text, harness_folder
from kernbench.worker.spares import MOST, Spares
from kernbench.worker.trust import Trust

ENDS = frozenset({"finished", "failed", "cancelled"})
GROWTH_LIMIT = 2 * 1024**3
UNTIMED = ("load", "build")
"""Steps in which a spare and the judge may use cores and the GPU; also while a baseline is compiled."""
ENOUGH_CORES = 4
"""For a spare and the judge to start next to the worker without slowing it down."""
AFTER_COMPILING = 10.0
"""Seconds to load what was compiled."""
SLOW_WARM_UP = 1.0
"""Seconds; a worker that took longer to load the compiler says so."""


class Supervisor:
    def __init__(
        self,
        device: str,
        emit: Callable[[Event], None],
        python: str | None = None,
        threads: int | None = None,
        deadlines: Deadlines | None = None,
        harness: Path | None = None,
        spares: bool = True,
        confirms: bool = False,
    ) -> None:
        """`confirms`: a confirmation may follow the first run, so the worker does not start alone."""
        self.device = device
        self.python = python or sys.executable
        self.deadlines = deadlines or Deadlines()
        self._threads = threads
        self._harness = harness or harness_folder()
        self._emit = emit
        self.builder = Precompiler(self.python, self._harness)
        self._trust = Trust(emit)
        self._child: ChildProcess | None = None
        self._has_spares = spares
        self.spares = Spares(lambda: self._start(), emit, MOST if spares else 0)
        self.judge = Judge(lambda: self._start("judge"))
        self._first_size: int | None = None
        self._run: str | None = None
        self._step = "load"
        self._entered = self._deadline = 0.0
        self._compiler: str | None = None
        self._cancelled = False
        self._queued = False
        """A conversation is waiting for the GPU or for a worker."""
        self._patience = 0.0
        """Extra seconds for the cancelled run."""
        self._announcing: asyncio.Task[None] | None = None
        self._has_cores = len(os.sched_getaffinity(0)) >= ENOUGH_CORES
        self._starts_others = confirms and self._has_cores
        self._starting_others: asyncio.Task[None] | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._resting = asyncio.Event()

    async def ready(self) -> Environment:
        """Wait for a worker that can take a request; raises Unusable if none can start."""
        while True:
            child = await self._current()
            try:
                environment = await self._started(child)
            except Unusable:
                await self._drop()
                raise
            if child.alive:
                return environment
            await self._drop()

    async def _started(self, child: ChildProcess) -> Environment:
        limits = self.deadlines
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.slow_start):
                return await child.wait_ready()
        so_far, at_most = fmt.seconds(limits.slow_start), fmt.seconds(limits.start)
        said = f"the worker is slow to start ({so_far}, giving up at {at_most})"
        self._emit(Notice(f"{said}; `kernbench doctor` checks its Python", "warning"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.start - limits.slow_start):
                return await child.wait_ready()
        raise Unusable(
            "broken", f"the worker did not start within {fmt.seconds(limits.start)} and was stopped; try again"
        )

    async def talk(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any] | WorkerLost, None]:
        self._cancelled = False
        child, case, untouched, first = await self._free_child(), None, True, True
        if self._cancelled:
            yield WorkerLost("cancelled", "load", None, "the run had not started yet")
            return
        confirms = request.get("request") == "confirm"
        untimed = () if confirms else (*UNTIMED, "baseline") if request.get("baseline") == "compile" else UNTIMED
        self._quieten(confirms)
        self.builder.freeze()
        self._run = str(request["run"])
        self._ask(child, request)
        try:
            while True:
                message = await self._next(child)
                if isinstance(message, WorkerLost):
                    await self._drop()
                    if message.kind == "crashed" and untouched:  # killed while idle: ask the next one
                        child, untouched = await self._free_child(), False
                        self._ask(child, request)
                        continue
                    yield replace(message, case=case)
                    return
                if message.get("event") == "stopped":
                    self._emit(Notice(f"a signal stopped the worker; `kill -CONT {child.pid}` resumes it", "warning"))
                if message.get("run") != self._run:
                    continue
                untouched = False
                if message.get("event") == "held":
                    self._resting.set()
                    self._deadline = float("inf")
                    continue
                if message.get("event") == "loaded":
                    self.builder.submit(request, message.get("compiler"))
                    continue
                if message.get("event") == "step":
                    case = message.get("case")
                    self._enter(str(message.get("step")))
                    if self._has_cores and self._step in untimed and self._free.is_set():
                        self._thaw()
                    else:
                        self._quieten(confirms)
                self._trust.take(message)
                if first and self.spares.any_ready and not self._cancelled and self._trust.wants_clean_worker(message):
                    await self._drop()
                    child, first = await self._free_child(), False
                    self._ask(child, request)
                    continue
                yield message | {"log": child.log_tail}
                if message.get("event") in ENDS:
                    if self._trust.must_replace():
                        await self._drop()
                    return
        finally:
            self._run = None
            self._resting.set()
            self._thaw()
            self.builder.thaw()

    def _quieten(self, confirms: bool) -> None:
        """Keep the others off the cores and the GPU; a confirmation needs the judge."""
        self.spares.stop_warming()
        if not confirms:
            self.judge.freeze()

    def _thaw(self) -> None:
        self.spares.thaw()
        self.judge.thaw()

    async def confirm(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any] | WorkerLost, None]:
        """`talk` for a confirmation; what the judge says comes before the end, as `judged` messages."""
        run = str(request["run"])
        try:
            await self.ready()
            address = await self.judge.listen(request)
            talk = self.talk({**request, "request": "confirm", "judge": address})
            async with contextlib.aclosing(talk) as conversation:
                async for message in conversation:
                    if isinstance(message, dict) and message.get("event") == "finished":
                        limit = self.deadlines.of("check") * max(1, len(request["cases"]))
                        async for verdict in self.judge.verdicts(run, limit, lambda: self._cancelled):
                            yield verdict
                        if self._cancelled:
                            message = WorkerLost("cancelled", "recheck", None, "a newer save")
                    yield message
        except JudgeLost as problem:
            yield WorkerLost("crashed", "recheck", None, str(problem))
        finally:
            self.judge.cancel(run)

    def _ask(self, child: ChildProcess, request: dict[str, Any]) -> None:
        self._enter("load")
        while not child.messages.empty():  # leftovers of an earlier run
            child.messages.get_nowait()
        child.log_tail.clear()  # what a compiler printed for an earlier source
        child.signal(signal.SIGCONT)  # something may have stopped it while it was idle
        self._trust.begin(child.pid, str(request.get("source")))
        child.send(request)
        if self._cancelled:  # while no worker was there to hear it
            child.send({"request": "cancel", "run": self._run})

    async def _free_child(self) -> ChildProcess:
        """A ready worker, once the GPU is not lent to another process."""
        self._queued = True
        try:
            while True:
                await self._free.wait()
                await self.ready()
                if self._free.is_set() and self._child is not None:
                    return self._child
        finally:
            self._queued = False

    async def lend_gpu(self) -> None:
        """Wait until we do not use the GPU: a run pauses after its next row, an A/A measurement is cancelled."""
        self._free.clear()
        self.spares.stop_warming()
        if self._child is None or self._run is None:
            return
        self._resting.clear()
        if self._run.startswith("floor-"):
            self.cancel()
        else:
            self._child.send({"request": "hold", "run": self._run})
        await self._resting.wait()

    @property
    def is_gpu_lent(self) -> bool:
        """Another process has the GPU, e.g. for a profile."""
        return not self._free.is_set()

    def take_back_gpu(self) -> None:
        """Resume the run where it paused."""
        self._free.set()
        if self._run is None:
            self.spares.thaw()
        if self._child is None:
            return
        self._child.send({"request": "release"})
        if self._run is not None:
            self._enter(self._step)
            self._child.messages.put_nowait({"event": "released"})  # wake the reader to check the deadline

    def cancel(self) -> None:
        """Ask the run to stop; a worker that does not respond soon is killed."""
        child = self._child
        if self._queued:  # not sent to the worker yet; the conversation ends before it begins
            self._cancelled = True
        if child is None or self._run is None or self._cancelled:
            return
        self._cancelled = True
        child.send({"request": "cancel", "run": self._run})
        self._deadline = asyncio.get_running_loop().time() + self.deadlines.cancel
        self._patience = self.deadlines.to_cancel(self._step, self.spares.any_warm) - self.deadlines.cancel
        child.messages.put_nowait({"event": "cancel asked"})  # wake the reader to check the new deadline

    async def prepare_spare(self) -> None:
        """Start a spare, and swap one in for a worker that has grown too large. Call while nothing runs."""
        child = self._child
        if not self._has_spares or child is None or not child.ready:
            return
        await self.spares.add(lambda: self._child is child)
        if self._child is not child:
            return
        if self.is_gpu_lent:
            self.spares.stop_warming()
        size = child.resident_bytes()
        self._first_size = self._first_size or size
        if size - self._first_size > GROWTH_LIMIT and self.spares.any_warm:
            await self.renew()

    async def renew(self) -> bool:
        """Swap a spare in for the worker; False if none is ready. Call while nothing runs."""
        if is_ready := self.spares.any_ready:
            await self._drop()
            await self.ready()
        return is_ready

    async def prepare_builder(self, interrupted: Callable[[], bool]) -> None:
        """Start the precompiler. Call while nothing runs, after the spare: the two would compete for cores."""
        if self._has_spares:
            await self.builder.prepare(interrupted)

    @property
    def busy(self) -> bool:
        """Whether a run is in progress, paused or not."""
        return self._run is not None

    @property
    def pids(self) -> tuple[int, ...]:
        """The worker's, then its spares'."""
        worker = (self._child.pid,) if self._child is not None and self._child.alive else ()
        return (*worker, *self.spares.pids)

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.close()
        await self.spares.close()
        await self.spares.started()
        if self._starting_others is not None:  # a spare that it was starting is gone: only the judge is left to stop
            self._starting_others.cancel()
            await asyncio.gather(self._starting_others, return_exceptions=True)
        await asyncio.gather(self.builder.close(), self.judge.close())

    async def _current(self) -> ChildProcess:
        if self._child is not None and self._child.alive:
            return self._child
        if self._child is not None:
            await self._drop()
        self._child = self.spares.take() or await self._start()
        self._emit(WorkerChanged("starting"))
        self._announcing = asyncio.create_task(self._announce(self._child))
        if self._starts_others:
            self._starts_others = False
            self._starting_others = asyncio.create_task(self._start_others(self._child))
        return self._child

    async def _start_others(self, child: ChildProcess) -> None:
        """Start the spare and the judge together with the worker, so that a confirmation need not wait for either."""
        await self.spares.add(lambda: self._child is child)
        with contextlib.suppress(JudgeLost):  # the confirmation says so
            await self.judge.prepare()

    async def _announce(self, child: ChildProcess) -> None:
        try:
            environment = await child.wait_ready()
        except Unusable:
            return
        if child is self._child and child.alive:
            self._emit(WorkerChanged("ready", environment))
        began = time.monotonic()
        await child.became_warm.wait()
        if child is self._child and child.warm and (seconds := time.monotonic() - began) >= SLOW_WARM_UP:
            self._emit(
                LogLine(
                    f"the worker was warm {fmt.seconds(seconds)} after it was ready: it has loaded torch's compiler"
                )
            )

    async def _start(self, module: str = "worker") -> ChildProcess:
        device = self._child.environment.device if self._child is not None and self._child.environment else self.device
        child = await ChildProcess.start(
            self.python,
            self._harness,
            self.device if module == "worker" else device,
            lambda line: self._emit(LogLine(line)),
            self._threads,
            module=module,
            on_left=lambda text: self._emit(Notice(text, "warning")),
            after=None if self._child is None or self._child.ready else self._child,
        )
        if self._trust.packages and module == "worker":
            child.send({"request": "import", "packages": self._trust.packages})
        return child

    async def _drop(self) -> None:
        child, self._child, self._first_size = self._child, None, None
        self.spares.forgive()
        if child is not None:
            await child.close()
            self._emit(WorkerChanged("lost"))

    async def _next(self, child: ChildProcess) -> dict[str, Any] | WorkerLost:
        left = self._deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(max(left, 0.001), self.deadlines.look)):
                message = await child.messages.get()
        except TimeoutError:
            return await self._silent(child)
        if message is not None:
            return message
        if self._cancelled:
            return WorkerLost("cancelled", self._step, None, "a newer save")
        detail = "exited after a CUDA error that broke its context"
        if child.refusal:
            detail = f"was stopped: {child.refusal}"
        elif child.returncode != CUDA_ERROR_EXIT:
            detail = exit_text(child.returncode)
        return WorkerLost("crashed", self._step, None, detail, await native_stack.resolved(child.log_tail))

    async def _silent(self, child: ChildProcess) -> dict[str, Any] | WorkerLost:
        """Reports a compiler at work, which moves the deadline; ends a step that is past it."""
        now, before, self._compiler = asyncio.get_running_loop().time(), self._compiler, compiler_below(child.pid)
        if now >= self._deadline and self._compiler and not self._cancelled:
            most = self._entered + self.deadlines.compile
            self._deadline = max(self._deadline, min(now + AFTER_COMPILING, most))
        if now >= self._deadline:
            return self._wait_longer() if self._cancelled and self._patience > 0 else await self._overstayed(child)
        if before == self._compiler:
            return {"event": "still waiting"}
        return {"event": "compiling", "run": self._run, "compiler": self._compiler or ""}

    def _wait_longer(self) -> dict[str, Any]:
        doing, patience, self._patience = render.STEP_WORDS.get(self._step, self._step), self._patience, 0.0
        self._emit(Notice(f"waiting up to {fmt.seconds(patience)} for the previous run to finish {doing}"))
        self._deadline = asyncio.get_running_loop().time() + patience
        return {"event": "still waiting"}

    async def _overstayed(self, child: ChildProcess) -> WorkerLost:
        stack = () if self._cancelled else await native_stack.resolved(await child.stack())
        child.kill()
        if self._cancelled:
            return WorkerLost("cancelled", self._step, None, "the worker did not respond and was killed")
        outcome = f"timed out after {fmt.seconds(self._deadline - self._entered)}"
        return WorkerLost("timeout", self._step, None, outcome, (*child.log_tail, *stack))

    def _enter(self, step: str) -> None:
        self._step, self._compiler = step, None
        if not self._cancelled:
            self._entered = asyncio.get_running_loop().time()
            self._deadline = self._entered + self.deadlines.of(step)
