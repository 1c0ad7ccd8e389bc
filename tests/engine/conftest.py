"""A task folder and sessions over the torch-free fake harness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, Event, RunCancelled, RunFinished, Summary
from kernbench.worker.supervisor import Deadlines

FAKE = Path(__file__).parent.parent / "fake" / "harness"
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "toy"
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

    async def until(self, condition: Callable[[], bool], seconds: float = 15.0) -> None:
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


def summaries(watched: Watched) -> list[Summary]:
    return [event.summary for event in watched.of(RunFinished)]  # type: ignore[attr-defined]


async def reached(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Until a condition holds that no event announces."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def watched(folder: Path) -> AsyncIterator[Callable[..., Watched]]:
    opened: list[Session] = []

    def make(**options: object) -> Watched:
        settings = {
            "harness": FAKE,
            "deadlines": Deadlines(build=1.0, check=1.0, time=1.0, cancel=0.5, cancel_build=0.5, cancel_spared=0.5),
        }
        session = Session(taskfile.load(folder), folder / ".kernbench", Options(**{**settings, **options}))  # type: ignore[arg-type]
        opened.append(session)
        return Watched(session)

    yield make
    for session in opened:
        await session.close()
