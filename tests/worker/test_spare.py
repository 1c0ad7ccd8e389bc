"""The spare: warm before it counts, and out of the way of what is timed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.events import CaseLanded, Notice, Summary
from kernbench.worker.supervisor import SPARE_TRIES
from tests.sessions import Watched, write


def state_of(pid: int) -> str:
    """R, S, D, or T where it was stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


async def warming(it: Watched, monkeypatch: pytest.MonkeyPatch) -> int:
    """A spare that is ready and not yet warm; its process."""
    await it.session.run_once(iteration=False)
    monkeypatch.setenv("FAKE_WARM_UP", "1.5")
    supervisor = it.session.supervisor
    await supervisor.prepare_spare()
    await until(lambda: supervisor.spare_ready)
    assert not supervisor.spare_warm
    return supervisor.pids[1]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_a_spare_that_still_warms_up_is_stopped_while_something_is_timed(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    spare = await warming(it, monkeypatch)
    states: list[str] = []
    it.session.listen(lambda event: states.append(state_of(spare)) if isinstance(event, CaseLanded) else None)
    write(folder, "TIME_US = 40.0")
    outcome = await it.session.run_once(iteration=False)
    assert isinstance(outcome, Summary)
    assert set(states) == {"T"}
    await until(lambda: it.session.supervisor.spare_warm)
    states.clear()
    await it.session.run_once(iteration=False)
    assert states
    assert "T" not in states


@pytest.mark.anyio
async def test_it_rests_while_somebody_else_has_the_gpu(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    spare = await warming(it, monkeypatch)
    await it.session.supervisor.lend_gpu()
    await until(lambda: state_of(spare) == "T")
    it.session.supervisor.take_back_gpu()
    await until(lambda: it.session.supervisor.spare_warm)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("FAKE_UNUSABLE", "1", "there is no device cuda:7 here"), ("FAKE_WARM_UP", "dies", "exited with code 1")],
)
async def test_a_gpu_without_room_for_a_spare_is_told_of_once_and_the_rest_is_done(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    """As where a GPU admits one process at a time: no new try after every save, and floors all the same."""
    it = watched(standby=False)
    assert isinstance(await it.session.run_once(iteration=False), Summary)
    monkeypatch.setenv(name, value)
    supervisor, tried = it.session.supervisor, set()
    for _ in range(SPARE_TRIES + 2):
        await supervisor.prepare_spare()
        tried.update(supervisor.pids[1:])
        await until(lambda: len(supervisor.pids) == 1)
    assert len(tried) == SPARE_TRIES
    (said,) = [event.text for event in it.of(Notice) if isinstance(event, Notice)]
    assert said == f"no spare worker ({why}); after a crash the next save waits for a new one"
    await it.session.start()
    floors = it.session.logbook.journal.floors
    await until(lambda: len(floors) == 3)
    monkeypatch.delenv(name)
    os.kill(supervisor.pids[0], signal.SIGKILL)
    await until(lambda: not supervisor.pids)
    it.session.rerun()
    await it.ended(3)
    await until(lambda: supervisor.spare_warm)
