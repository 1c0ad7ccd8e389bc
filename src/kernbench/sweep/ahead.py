"""Builds the variants of a sweep ahead of their turn, in processes next to the worker (harness/precompile/server.py).

Only for Triton, and CUDA next to it, on a GPU: what a variant launches is compiled into the cache on disk, where the
worker finds it. C++ for the CPU is left to the worker, because a compiler next to it would disturb its times. Like the
precompiler of the workbench, it may fail without harm: the worker compiles what it does not find.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

from kernbench.worker.precompiler import Precompiler
from kernbench.worker.process import ChildProcess, Unusable

CORES_EACH = 4
MOST = 3
"""Processes; each compiles in several more."""
START_S, BUILD_S = 60.0, 40.0
"""The builders themselves end a build after 30 s."""
PATIENCE = 15.0
"""Seconds that a variant's turn waits for its build."""


class Ahead(Precompiler):
    """Takes the precompiler's place in the supervisor, which tells it what the worker compiles for."""

    def __init__(self, python: str, harness: Path) -> None:
        super().__init__(python, harness)
        self._facts: dict[str, Any] | None = None
        self._builders: list[asyncio.Task[None]] = []
        self._ready = 0
        """Builders that have started."""
        self._jobs: dict[str, dict[str, Any]] = {}
        """Requests that wait for a builder, by name, in their order."""
        self._building: dict[str, asyncio.Event] = {}
        self._wake = asyncio.Condition()

    def submit(self, request: dict[str, Any], compiler: dict[str, Any] | None) -> None:
        """A worker has loaded a source; the builders start with the first that has something to compile."""
        if compiler is None:
            return
        self._facts = compiler
        if not self._builders:
            count = max(1, min(MOST, (os.cpu_count() or 1) // CORES_EACH))
            self._builders = [asyncio.create_task(self._serve()) for _ in range(count)]

    async def add(self, name: str, request: dict[str, Any]) -> None:
        """Puts a variant into the line."""
        if self._builders:
            async with self._wake:
                self._jobs[name] = request
                self._wake.notify()

    async def built(self, name: str) -> None:
        """Waits until a variant is built; not if no builder has begun it or can begin soon."""
        if not self._ready:
            self._jobs.pop(name, None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while name in self._jobs and self._ready:
                    await asyncio.sleep(0.02)
                if name in self._building:
                    await self._building[name].wait()

    async def close(self) -> None:
        for task in self._builders:
            task.cancel()
        await asyncio.gather(*self._builders, return_exceptions=True)
        await super().close()

    async def _serve(self) -> None:
        """One builder, until it is lost or hangs."""
        child: ChildProcess | None = None
        try:
            child = await ChildProcess.start(
                self._python, self._harness, None, lambda _line: None, module="precompile.server"
            )
            async with asyncio.timeout(START_S):
                await child.wait_ready()
            self._ready += 1
            try:
                while child.alive:
                    await self._build(child)
            finally:
                self._ready -= 1
        except (Unusable, TimeoutError, OSError):
            return
        finally:
            if child is not None:
                with contextlib.suppress(OSError):
                    await child.close()

    async def _build(self, child: ChildProcess) -> None:
        async with self._wake:
            await self._wake.wait_for(lambda: bool(self._jobs))
            name = next(iter(self._jobs))
            request = self._jobs.pop(name)
        done = self._building[name] = asyncio.Event()
        try:
            child.send({**request, "compiler": self._facts, "whole": True})
            async with asyncio.timeout(BUILD_S):
                while (message := await child.messages.get()) is not None and message.get("event") != "left":
                    pass
        finally:
            done.set()
            self._building.pop(name, None)
