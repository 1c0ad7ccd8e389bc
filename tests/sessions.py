"""The toy task that the fake harness runs, and sessions whose events a test can wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from kernbench.engine.runner import RunOutcome
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, Confirmed, Event, RunCancelled, RunFinished, Summary
from kernbench.worker.deadlines import Deadlines

TASK = """
name = "toy"
entry = "toy"
device = "cpu"
[[case]]
id = "a"
label = "a 16x16"
axes = { rows = 16 }
[[case]]
id = "b"
axes = { rows = 32 }
[[case]]
id = "c"
axes = { rows = 64 }
[grid]
rows = [1, 2, 3]
"""
PATIENT = Deadlines(build=60.0, check=60.0, time=60.0, cancel=60.0, cancel_build=60.0, cancel_spared=60.0)
"""No busy machine makes the fake worker overstay these."""
HASTY = Deadlines(build=1.0, check=1.0, time=1.0, cancel=0.5, cancel_build=0.5, cancel_spared=0.5)
"""For a worker that hangs."""


def toy(place: Path) -> Path:
    """The task, in a new folder."""
    place.mkdir()
    (place / "task.toml").write_text(TASK)
    (place / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    (place / "solution.py").write_text("def toy(): ...\nTIME_US = 50.0\n")
    return place


def write(folder: Path, text: str) -> None:
    (folder / "solution.py").write_text("def toy(): ...\n" + text + "\n")


class Watched:
    """A session whose events are kept and can be waited for."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[Event] = []
        self._changed = asyncio.Event()
        session.listen(self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def idle(self) -> None:
        """Until the session has dealt with everything it was asked, and starts nothing by itself."""
        await reached(lambda: self.session.is_idle)

    async def ended(self, count: int) -> None:
        """Until so many runs have ended, in whichever way."""
        await self.until(
            lambda: sum(isinstance(e, (RunFinished, BuildFailed, RunCancelled)) for e in self.events) >= count
        )

    async def confirmed(self, count: int = 1) -> Confirmed:
        """Until so many runs that would be best are confirmed or refused; the last of them."""
        await self.until(lambda: len(self.of(Confirmed)) >= count)
        event = self.of(Confirmed)[count - 1]
        assert isinstance(event, Confirmed)
        return event


def summaries(watched: Watched) -> list[Summary]:
    return [event.summary for event in watched.of(RunFinished)]  # type: ignore[attr-defined]


async def run_and_confirm(session: Session, iteration: bool) -> RunOutcome | None:
    """A run as `kernbench run` makes it, to its confirmation if it would be best; with what came of that."""
    outcome = await session.run_once(iteration)
    await session.confirm()
    runs = session.logbook.journal.summaries
    settled = (run for run in runs if isinstance(outcome, Summary) and run.run == outcome.run)
    return next(settled, outcome)


async def reached(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Until a condition holds that no event announces."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def gone(pid: int, seconds: float = 30.0) -> bool:
    """Whether a process ends in so many seconds; a zombie has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
