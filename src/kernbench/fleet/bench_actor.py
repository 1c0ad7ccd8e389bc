"""What runs on a node: one actor per GPU or CPU slot, with a worker that stays warm between jobs.

Nothing here imports Ray, which makes an actor of the class. A job runs in its own thread and loop, by the same code as
at home, so that the actor can say at any time what it is doing. However the actor ends, the worker's launcher notices
and ends the worker with everything that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.shared import taskfile
from kernbench.engine.jobs import SharedWorker
from kernbench.fleet import job as jobs
from kernbench.fleet.job import Job
from kernbench.fleet.node_trials import NodeTrials
from kernbench.machine.telemetry import MachineReader
from kernbench.suites import suite_run
from kernbench.version import __version__

T = TypeVar("T")


class BenchActor:
    def __init__(self, node: str, settings: Mapping[str, Any], has_gpu: bool, cache: str | None = None) -> None:
        if has_gpu:  # Ray counts the cores of a slot; a run at home has them all
            os.environ.pop("OMP_NUM_THREADS", None)
        self._node = node
        self._cache = Path(cache) if cache else _cache()
        self._worker = SharedWorker()
        self._options = suite_run.unattended(jobs.options_of(settings), self._worker)
        self._trials = NodeTrials(self._cache, self._options)
        self._gpu = next(iter(MachineReader().read().gpus), None) if has_gpu else None
        self._job, self._since, self._done = "", 0.0, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bench", daemon=True)
        self._thread.start()
        jobs.remove_old(self._cache)

    def now(self) -> dict[str, Any]:
        """Who this is and what it is doing."""
        return {
            "node": self._node,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "device": self._gpu.name if self._gpu else "CPU",
            "uuid": self._gpu.uuid if self._gpu else None,
            "type": self._gpu.name if self._gpu else processor(),
            "job": self._job,
            "seconds": time.monotonic() - self._since if self._job else 0.0,
            "done": self._done,
        }

    async def run(self, job: Job) -> dict[str, Any]:
        """What came of it, and the lines of runs.jsonl."""
        return await self._there(self._run(job))

    async def close(self) -> None:
        """End the worker of an actor whose process goes on."""
        await self._there(self._trials.close())
        await self._there(self._worker.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """In the thread of jobs."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _run(self, job: Job) -> dict[str, Any]:
        self._job, self._since = job.name, time.monotonic()
        try:
            folder = jobs.unpacked(job, self._cache)
            if job.kind == jobs.TRIAL:
                return await self._trials.measure(job, folder)
            return await self._problem(job, folder)
        finally:
            self._job, self._done = "", self._done + 1

    async def _problem(self, job: Job, folder: Path) -> dict[str, Any]:
        state = Path(tempfile.mkdtemp(prefix="runs-", dir=self._cache))
        try:
            task = taskfile.load(folder)
            outcome = await suite_run.run_problem(job.name, task, self._options, state)
            runs = state / "runs.jsonl"
            lines = runs.read_text(encoding="utf-8").splitlines() if runs.is_file() else []
        finally:
            shutil.rmtree(state, ignore_errors=True)
        outcome = replace(outcome, node=self._node, detail=jobs.at_home(outcome.detail, job, folder, state))
        return {"outcome": asdict(outcome), "lines": [jobs.at_home(line, job, folder, state) for line in lines]}


def processor() -> str:
    """The CPU's type."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernbench" / "fleet"
