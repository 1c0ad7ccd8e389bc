"""Writes the entries that wait for ITERATIONS.md, as soon as that is possible: those that its lock kept out, and those
of a session that was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.shared.errors import UserError
from kernbench.events import Event, Notice
from kernbench.log.logbook import Logbook

RETRY = 0.5
"""Seconds between two attempts."""


class WaitingEntries:
    def __init__(self, logbook: Logbook, emit: Callable[[Event], None]) -> None:
        self._logbook, self._emit = logbook, emit
        self._may_wait = asyncio.Event()
        self._may_wait.set()

    def look(self) -> None:
        """A run has ended: its entry may wait."""
        if self._logbook.journal.waiting:
            self._may_wait.set()

    async def keep_writing(self) -> None:
        """Never ends."""
        while True:
            await self._may_wait.wait()
            self._may_wait.clear()
            try:
                await self.write()
            except UserError:  # the run said so
                self._may_wait.set()
                await asyncio.sleep(RETRY)

    async def write(self) -> None:
        if numbers := await self._logbook.in_thread(self._logbook.enter_waiting):
            named = f"entries {numbers[0]} to {numbers[-1]} are" if len(numbers) > 1 else f"entry {numbers[0]} is"
            self._emit(Notice(f"{named} now in ITERATIONS.md"))
