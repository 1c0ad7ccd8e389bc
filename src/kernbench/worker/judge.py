"""The process that judges confirmations (harness/judge.py). It never loads a solution, so it stays for the next.

`listen` tells it what will be confirmed and returns the address at which the worker hands over its results; `verdicts`
yields what the judge says about each case. While something else is timed it is frozen, like a spare that warms up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from kernbench.worker.process import ChildProcess, Unusable, exit_text

START_S, LISTEN_S = 120.0, 30.0
"""Seconds to start, and to load a task's reference."""
TURN_S = 0.05


class JudgeLost(Exception):
    """The judge ended, or was silent for too long; the message says which."""


class Judge:
    def __init__(self, start: Callable[[], Awaitable[ChildProcess]]) -> None:
        self._start = start
        self._child: ChildProcess | None = None
        self._starting = asyncio.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        return (self._child.pid,) if self._child is not None and self._child.alive else ()

    async def prepare(self) -> ChildProcess:
        """Start it unless it is there, and wait until it is ready; raises JudgeLost."""
        async with self._starting:
            if self._child is not None and not self._child.alive:
                await self._child.close()
                self._child = None
            try:
                if self._child is None:
                    self._child = await self._start()
                async with asyncio.timeout(START_S):
                    await self._child.wait_ready()
            except (Unusable, TimeoutError) as problem:
                await self.close()
                raise JudgeLost(f"the judge did not start ({problem or 'it takes too long'})") from None
            return self._child

    async def listen(self, request: dict[str, Any]) -> str:
        """The address for the worker of this confirmation; raises JudgeLost."""
        child = await self.prepare()
        child.thaw()
        child.send({**request, "request": "judge"})
        message = await self._next(child, str(request["run"]), LISTEN_S)
        if message["event"] != "listening":
            raise JudgeLost(f"the judge cannot load the task: {message.get('problem')}")
        return str(message["address"])

    async def verdicts(
        self, run: str, seconds: float, is_cancelled: Callable[[], bool]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """A `judged` message per case; ends early if cancelled, raises JudgeLost."""
        child = self._child
        while child is not None and not is_cancelled():
            message = await self._next(child, run, seconds, is_cancelled)
            if message["event"] == "judged":
                yield message
            elif message["event"] == "finished":
                if message.get("problem"):
                    raise JudgeLost(f"the judge could not judge it: {message['problem']}")
                return

    async def _next(
        self, child: ChildProcess, run: str, seconds: float, is_cancelled: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """Its next message about a run; messages about earlier ones are dropped."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            try:
                async with asyncio.timeout(TURN_S):
                    message = await child.messages.get()
            except TimeoutError:
                if is_cancelled():
                    return {"event": "cancelled"}
                continue
            if message is None:
                raise JudgeLost(f"the judge {exit_text(child.returncode)}")
            if message.get("run") == run:
                return message
        child.kill()
        raise JudgeLost("the judge was silent for too long and was stopped")

    def cancel(self, run: str) -> None:
        """It need not go on with this confirmation."""
        if self._child is not None:
            self._child.send({"request": "cancel", "run": run})

    def freeze(self) -> None:
        if self._child is not None:
            self._child.freeze()

    def thaw(self) -> None:
        if self._child is not None:
            self._child.thaw()

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.close()
