"""The spare: warm before it counts, and out of the way of what is timed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernbench.events import CaseLanded, Notice, Progress, Summary
from kernbench.worker import spares, supervisor
from kernbench.worker.process import ChildProcess
from kernbench.worker.spares import MOST, TRIES
from kernbench.worker.supervisor import ENOUGH_CORES, UNTIMED
from tests.sessions import Watched, reached, run_and_confirm, summaries, write


def state_of(pid: int) -> str:
    """R, S, D, or T where it was stopped; on a busy machine it may still wait for the core on which it will stop."""
    about = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    pending = int(about["SigPnd"], 16) | int(about["ShdPnd"], 16)
    return "T" if pending >> (signal.SIGSTOP - 1) & 1 else about["State"].split()[0]


class Warming:
    """A spare that is ready, and warms up until it is let on."""

    def __init__(self, it: Watched, file: Path) -> None:
        self.supervisor, self._file = it.session.supervisor, file

    async def start(self, it: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        await it.session.run_once(iteration=False)
        monkeypatch.setenv("FAKE_WARM_UP", str(self._file))
        await self.supervisor.prepare_spare()
        await reached(lambda: self.supervisor.spares.any_ready)
        assert not self.supervisor.spares.any_warm
        assert not self.supervisor.spares.may_start  # how much of the GPU it leaves free is not known yet
        self.pid = self.supervisor.pids[1]

    async def end(self) -> None:
        self._file.touch()
        await reached(lambda: self.supervisor.spares.any_warm)


@pytest.mark.anyio
async def test_a_spare_that_still_warms_up_is_stopped_while_something_is_timed(
    watched: Callable[..., Watched], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    spare = Warming(it, tmp_path / "warm")
    await spare.start(it, monkeypatch)
    states: list[str] = []
    it.session.listen(lambda event: states.append(state_of(spare.pid)) if isinstance(event, CaseLanded) else None)
    write(folder, "TIME_US = 40.0")
    outcome = await it.session.run_once(iteration=False)
    assert isinstance(outcome, Summary)
    assert set(states) == {"T"}
    await spare.end()
    states.clear()
    await it.session.run_once(iteration=False)
    assert states
    assert "T" not in states


def cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(count)))
    monkeypatch.setattr(supervisor, "ENOUGH_CORES", ENOUGH_CORES)


@pytest.mark.anyio
async def test_with_cores_to_spare_it_goes_on_while_a_baseline_is_compiled(
    watched: Callable[..., Watched], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores(monkeypatch, 8)
    it = watched(confirm=False)
    spare, states = Warming(it, tmp_path / "warm"), dict[str, set[str]]()
    await spare.start(it, monkeypatch)

    def note(event: object) -> None:
        if isinstance(event, Progress):
            states.setdefault(event.step, set()).add("T" if state_of(spare.pid) == "T" else "")

    it.session.listen(note)
    write(folder, "TIME_US = 40.0")
    assert isinstance(await it.session.run_once(iteration=False), Summary)
    assert {step: state for step, state in states.items() if step in UNTIMED} == {"load": {""}}
    assert states["check"] == {"T"}
    await spare.end()


@pytest.mark.anyio
@pytest.mark.parametrize(("count", "early"), [(ENOUGH_CORES, ["judge", "worker", "worker"]), (3, ["worker"])])
async def test_spare_and_judge_start_with_the_worker_where_cores_are_free(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, count: int, early: list[str]
) -> None:
    cores(monkeypatch, count)
    started, start = list[str](), ChildProcess.start

    async def noted(*words: Any, **named: Any) -> ChildProcess:
        started.append(named["module"])
        return await start(*words, **named)

    monkeypatch.setattr(ChildProcess, "start", noted)
    it = watched()
    await it.session.run_once(iteration=False)
    await reached(lambda: len(started) == len(early))
    assert sorted(started) == early
    await it.session.confirm()
    assert it.session.logbook.journal.summaries[-1].confirmed
    assert sorted(started) == ["judge", "worker", "worker"]


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5])
async def test_closing_leaves_neither_spare_nor_judge_however_far_they_are(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    cores(monkeypatch, 8)
    started, start = list[ChildProcess](), ChildProcess.start

    async def noted(*words: Any, **named: Any) -> ChildProcess:
        started.append(await start(*words, **named))
        return started[-1]

    monkeypatch.setattr(ChildProcess, "start", noted)
    it = watched()
    await it.session.start()
    await asyncio.sleep(seconds)
    await it.session.close()
    assert not [child.pid for child in started if child.alive]


@pytest.mark.anyio
async def test_it_rests_while_somebody_else_has_the_gpu(
    watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    spare = Warming(it, tmp_path / "warm")
    await spare.start(it, monkeypatch)
    await it.session.supervisor.lend_gpu()
    await reached(lambda: state_of(spare.pid) == "T")
    it.session.supervisor.take_back_gpu()
    await spare.end()


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
    assert isinstance(await run_and_confirm(it.session, iteration=False), Summary)
    await reached(lambda: len(it.session.supervisor.pids) == 1)
    monkeypatch.setenv(name, value)
    supervisor, tried = it.session.supervisor, list[ChildProcess]()
    start = ChildProcess.start

    async def noted(*words: Any, **named: Any) -> ChildProcess:
        tried.append(await start(*words, **named))
        return tried[-1]

    monkeypatch.setattr(ChildProcess, "start", noted)
    for _ in range(TRIES + 2):
        await supervisor.prepare_spare()
        await reached(lambda: len(supervisor.pids) == 1)
    assert len(tried) == TRIES
    (said,) = [event.text for event in it.of(Notice) if isinstance(event, Notice)]
    assert said == f"no spare worker ({why}): a crash will make the next save wait for a restart"
    await it.session.start()
    floors = it.session.logbook.journal.floors
    await reached(lambda: len(floors) == 3)
    monkeypatch.delenv(name)
    os.kill(supervisor.pids[0], signal.SIGKILL)
    await reached(lambda: not supervisor.pids)
    it.session.rerun()
    await it.ended(3)
    await reached(lambda: supervisor.spares.any_warm)


@pytest.mark.anyio
async def test_a_spare_that_starts_while_the_workers_are_sent_away_goes_too(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = (it := watched()).session.supervisor
    await it.session.run_once(iteration=False)
    start, started, closing = supervisor._start, list[ChildProcess](), list[asyncio.Task[None]]()

    async def start_late() -> ChildProcess:
        started.append(await start())
        closing.append(asyncio.create_task(supervisor.close()))
        await reached(lambda: not supervisor.pids)
        return started[0]

    monkeypatch.setattr(supervisor, "_start", start_late)
    preparing = asyncio.create_task(supervisor.prepare_spare())
    await reached(lambda: bool(closing))
    await closing[0]
    assert not started[0].alive  # who closed them finds none left
    await preparing
    assert supervisor.pids == ()


@pytest.mark.anyio
async def test_two_lost_in_a_row_are_both_replaced_at_once(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched(standby=False, floors=False)
    supervisor = it.session.supervisor
    await it.session.start()
    await it.confirmed()
    await reached(lambda: len(supervisor.pids) == 1 + MOST and supervisor.spares.all_are("is_prepared"))
    worker, *waiting = supervisor.pids
    for count in range(MOST):
        write(folder, f'DO = "exit"\nTIME_US = {50 + count}.0')
        await it.ended(2 + count)
    write(folder, "TIME_US = 40.0")
    await it.ended(2 + MOST)
    assert summaries(it)[-1].right
    assert supervisor.pids[0] == waiting[-1]
    await reached(lambda: len(supervisor.pids) == 1 + MOST)
    assert not {worker, *waiting[:-1]} & set(supervisor.pids)


@pytest.mark.anyio
@pytest.mark.parametrize(("machine", "gpu", "count"), [(0.5, 0.5, 2), (0.49, 1.0, 1), (1.0, 0.49, 1)])
async def test_a_second_one_needs_half_of_the_memory(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, machine: float, gpu: float, count: int
) -> None:
    it = watched()
    await it.session.run_once(iteration=False)
    monkeypatch.setattr("kernbench.worker.spares.memory_free", lambda: machine)
    monkeypatch.setenv("FAKE_GPU_FREE", str(gpu))
    for _ in range(MOST + 1):
        await it.session.supervisor.prepare_spare()
        await reached(lambda: it.session.supervisor.spares.all_are("warm"))
    assert len(it.session.supervisor.spares.pids) == count


def test_a_container_counts_as_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares, "MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(spares, "CONTAINER", tmp_path)
    assert spares.memory_free() == 1
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 800 kB\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 100\n")
    assert spares.memory_free() == pytest.approx(0.8)
    (tmp_path / "memory.max").write_text("1000\n")
    assert spares.memory_free() == pytest.approx(0.4)  # files that were read count as free


async def with_spare(watched: Callable[..., Watched]) -> Watched:
    """A session that has run once and has a warm spare."""
    it = watched()
    await it.session.run_once(iteration=False)
    await it.session.supervisor.prepare_spare()
    await reached(lambda: it.session.supervisor.spares.any_warm)
    return it


@pytest.mark.anyio
async def test_a_worker_that_a_source_has_changed_makes_room_for_the_spare(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = await with_spare(watched)
    worker, spare = it.session.supervisor.pids
    write(folder, 'DO = "patch"')
    patched = await it.session.run_once(iteration=False)
    assert isinstance(patched, Summary)
    assert [finding.code for finding in patched.findings] == ["process_changed"]
    assert worker not in it.session.supervisor.pids
    write(folder, "TIME_US = 40.0")
    honest = await it.session.run_once(iteration=False)
    assert isinstance(honest, Summary)
    assert (honest.findings, it.session.supervisor.pids[0]) == ((), spare)


@pytest.mark.anyio
async def test_a_source_in_a_changed_worker_is_run_again_in_the_spare(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = await with_spare(watched)
    spare = it.session.supervisor.pids[1]
    write(folder, 'DO = "find"')
    found = await it.session.run_once(iteration=False)
    assert isinstance(found, Summary)
    assert (found.right, found.findings, it.session.supervisor.pids) == (True, (), (spare,))
