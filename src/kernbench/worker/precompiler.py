"""The process that compiles kernels ahead of the worker (harness/precompile/server.py). Its failure is harmless.

It starts while nothing runs, once a worker has loaded a Triton source on a GPU, stays for later runs, and gets every
source that loads; the newest counts. Nothing waits for it or reports on it: if it dies or hangs, only the time it would
have saved is lost. Like the spare, it is frozen if it is still importing when a run begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernbench.worker.process import ChildProcess, Unusable

MOST_FAILURES = 2
"""After this many that died or hung before they were ready, none is started."""
START_S = 60.0


class Precompiler:
    def __init__(self, python: str, harness: Path) -> None:
        self._python, self._harness = python, harness
        self._child: ChildProcess | None = None
        self._wanted = False
        self._failures = 0

    @property
    def ready(self) -> bool:
        return self._child is not None and self._child.ready

    @property
    def starting(self) -> bool:
        return self._child is not None and self._child.alive and not self._child.ready

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.alive else None

    def submit(self, request: dict[str, Any], compiler: dict[str, Any] | None) -> None:
        """A worker has loaded the request's source and compiles it as described by `compiler`."""
        if compiler is None:
            return
        self._wanted = True
        if self._child is not None and self.ready and len(request["cases"]) > 1:
            while not self._child.messages.empty():  # answers to earlier requests
                self._child.messages.get_nowait()
            self._child.send({**request, "compiler": compiler})

    async def prepare(self, interrupted: Callable[[], bool]) -> None:
        """Start the process, or replace a dead one, and wait until it is ready. Call while nothing runs."""
        await self._bury()
        if self._wanted and self._child is None and self._failures < MOST_FAILURES:
            try:
                self._child = await ChildProcess.start(
                    self._python, self._harness, None, lambda _line: None, module="precompile.server"
                )
            except Unusable:
                self._failures = MOST_FAILURES
        end = time.monotonic() + START_S
        while self.starting and not interrupted():
            if self._child is not None and time.monotonic() > end:
                self._child.kill()
            await asyncio.sleep(0.05)
        await self._bury()

    def freeze(self) -> None:
        if self._child is not None and self.starting:
            self._child.freeze()

    def thaw(self) -> None:
        if self._child is not None:
            self._child.thaw()

    async def _bury(self) -> None:
        """Remove a dead process; one that was never ready counts as a failure."""
        if self._child is not None and not self._child.alive:
            self._failures += self._child.environment is None
            await self.close()

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(OSError):
                await child.close()
