"""The conversation with the worker: cancelled at any moment, lent out at any moment, and a worker that never starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernbench.events import Notice, RunCancelled, RunFinished, RunStarted, Summary
from kernbench.worker.deadlines import Deadlines
from kernbench.worker.process import WorkerLost
from kernbench.worker.supervisor import Supervisor
from tests import FAKE
from tests.sessions import PATIENT, Watched, write

pytestmark = pytest.mark.anyio
REQUEST = {"request": "floor", "run": "one", "cases": ["a"]}


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor("cpu", lambda event: None, harness=FAKE, spares=False)
    yield made
    await made.close()


class SlowStart:
    """A worker that is not ready before it is let go."""

    def __init__(self, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self._ready = supervisor.ready
        monkeypatch.setattr(supervisor, "ready", self.ready)

    async def ready(self) -> Any:
        self.asked.set()
        await self.go.wait()
        return await self._ready()


async def conversation(supervisor: Supervisor) -> list[Any]:
    return [message async for message in supervisor.talk(REQUEST)]


async def test_a_save_while_the_worker_comes_up_again_cancels_the_run_before_it(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SlowStart(supervisor, monkeypatch)
    talk = asyncio.create_task(conversation(supervisor))
    await start.asked.wait()
    supervisor.cancel()
    start.go.set()
    (said,) = await talk
    assert isinstance(said, WorkerLost)
    assert said.kind == "cancelled"


async def test_nothing_begins_on_a_gpu_that_was_lent_while_the_worker_came_up(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SlowStart(supervisor, monkeypatch)
    talk = asyncio.create_task(conversation(supervisor))
    await start.asked.wait()
    await supervisor.lend_gpu()
    start.go.set()
    while supervisor._child is None or not supervisor._child.ready:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert not supervisor.busy
    assert not talk.done()
    supervisor.take_back_gpu()
    assert [message["event"] for message in await talk] == ["floor", "finished"]


@pytest.mark.parametrize("spares", [True, False])
async def test_a_save_while_the_one_before_hangs_in_its_load_is_told_to_wait_and_served(
    watched: Callable[..., Watched], folder: Path, spares: bool
) -> None:
    short, long = (0.2, 600.0) if spares else (600.0, 0.2)
    limits = Deadlines(build=600.0, cancel=0.1, cancel_build=long, cancel_spared=short)
    it = watched(deadlines=limits, spares=spares)
    await it.session.start()
    await it.ended(1)
    while spares and not it.session.supervisor.spares.any_warm:
        await asyncio.sleep(0.01)
    write(folder, 'DO = "hang_load"')
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(it.of(RunFinished)) == 2)
    assert len(it.of(RunCancelled)) == 1
    assert Notice("waiting up to 0.1 s for the previous run to finish loading") in it.events


async def test_a_worker_that_never_starts_is_told_of_and_given_up(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_START", "600")
    it = watched(deadlines=Deadlines(slow_start=0.2, start=0.3), spares=False)
    assert await it.session.run_once(iteration=False) is None
    slow, gone = (event.text for event in it.of(Notice))  # type: ignore[attr-defined]
    assert slow.startswith("the worker is slow to start (0.2 s, giving up at 0.3 s);")
    assert gone == "the worker did not start within 0.3 s and was stopped; try again"
    assert it.session.supervisor.pids == ()


async def test_after_a_worker_that_did_not_start_the_same_text_saved_again_is_tried(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_START", "600")
    it = watched(deadlines=Deadlines(slow_start=0.2, start=0.3), spares=False)
    await it.session.start()
    await it.until(lambda: it.session.problem is not None)
    it.session.supervisor.deadlines = PATIENT
    monkeypatch.setenv("FAKE_START", "0")
    (folder / "solution.py").write_text((folder / "solution.py").read_text())
    await it.until(lambda: it.of(RunFinished))


async def test_a_worker_that_starts_late_is_served_by(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_START", "0.3")
    it = watched(deadlines=Deadlines(slow_start=0.01), spares=False)
    assert isinstance(await it.session.run_once(iteration=False), Summary)
    assert len(it.of(Notice)) == 1


@pytest.mark.parametrize("later", range(6))
async def test_a_cancellation_that_arrives_with_a_message_is_not_lost(later: int) -> None:
    """asyncio.wait_for would return the message and go on, in Python 3.11."""
    child = SimpleNamespace(messages=asyncio.Queue[dict[str, str]]())
    limits = SimpleNamespace(_deadline=asyncio.get_running_loop().time() + 60, deadlines=SimpleNamespace(look=60.0))

    async def messages() -> None:
        while True:
            await Supervisor._next(limits, child)  # type: ignore[arg-type]

    listening = asyncio.create_task(messages())
    await asyncio.sleep(0.01)
    child.messages.put_nowait({"event": "case"})
    for _ in range(later):
        await asyncio.sleep(0)
    listening.cancel()
    await asyncio.wait([listening], timeout=5)
    assert listening.cancelled()
