"""The driver, as seen from the process that starts it: its events, its end, and its end without a word."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.fleet import cluster_address
from kernbench.worker.launched import Launched

LONGEST_EVENT = 1 << 28
LOGGED = re.compile(r"^\[[^]]*\] \S+:\d+: ")
CONNECT_S, END_S, DRAIN_S = 30.0, 10.0, 0.5


class DriverProcess:
    def __init__(self, program: Launched, address: str) -> None:
        self._program, self.address = program, address
        self._exited = asyncio.create_task(program.exited.wait())
        self._reading = asyncio.create_task(self._read_output())
        self._tail: list[str] = []
        self._is_connected = False

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, what: str, given: str) -> AsyncIterator[DriverProcess]:
        """Starts it; however the block ends, the driver ends too, and its actors with it."""
        if importlib.util.find_spec("ray") is None:
            raise UserError("--ray needs Ray, which is not installed here: `pip install 'kernbench[ray]'`")
        address = await asyncio.to_thread(cluster_address.resolve, given)
        words = [sys.executable, "-P", "-m", "kernbench.fleet.driver", what, address]
        program = await Launched.start(words, {**os.environ, "PYTHONUNBUFFERED": "1"}, LONGEST_EVENT)
        driver = cls(program, address)
        try:
            yield driver
        finally:
            await driver._end()

    async def connected(self) -> dict[str, Any]:
        """What the cluster consists of."""
        try:
            async with asyncio.timeout(CONNECT_S):
                event = await self._next()
        except TimeoutError:
            waited = f"did not let us in within {fmt.seconds(CONNECT_S)}"
            raise UserError(f"the Ray cluster at {self.address} {waited}; check it with `ray status`") from None
        if event is None or event["event"] != "connected":
            raise UserError(event["message"] if event else f"Ray could not be started: {self.last_words}")
        self._is_connected = True
        return event

    @property
    def last_words(self) -> str:
        return first_sentence(self._tail[-1]) if self._tail else "it printed nothing"

    @property
    def ended(self) -> str:
        """Why there are no more events."""
        return f"the Ray cluster at {self.address} is gone, or its driver was ended ({self.last_words})"

    def order(self, **order: Any) -> None:
        if self._program.requests is not None and not self._program.requests.is_closing():
            self._program.requests.write(json.dumps(order).encode() + b"\n")

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Until the driver has ended; the last is `done` or `failed` only if it came to an end."""
        while (event := await self._next()) is not None:
            yield event
            if event["event"] in ("done", "failed"):
                return

    async def _next(self) -> dict[str, Any] | None:
        line = asyncio.ensure_future(self._program.events.readline())
        try:
            await asyncio.wait((line, self._exited), return_when=asyncio.FIRST_COMPLETED)
            if not line.done():  # what it said last may still be in the pipe
                await asyncio.wait((line,), timeout=DRAIN_S)
            with contextlib.suppress(ValueError):  # a line that its end has cut off
                return dict(json.loads(line.result())) if line.done() else None
            return None
        finally:
            line.cancel()

    async def _read_output(self) -> None:
        while chunk := await self._program.output.read(1 << 16):
            said = [line.strip() for line in chunk.decode(errors="replace").splitlines() if line.strip()]
            self._tail = [*self._tail, *said][-50:]

    async def _end(self) -> None:
        """Its stdin ends first: only then does it say goodbye to the cluster."""
        if self._program.requests is not None:
            self._program.requests.close()
        if self._is_connected:
            await asyncio.wait((self._exited,), timeout=END_S)
        await self._program.close()
        self._exited.cancel()
        self._reading.cancel()


def given_up(lost: Mapping[str, Any]) -> str:
    """What became of a job whose slots were all lost."""
    return f"given up after {len(lost['nodes'])} tries, on {', '.join(lost['nodes'])}: {lost['why']}"


def first_sentence(line: str) -> str:
    """What a line of Ray's log says, without time, process and place in Ray's source."""
    return LOGGED.sub("", line).partition(". ")[0].rstrip(".")
