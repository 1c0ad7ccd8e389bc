"""The process that compiles ahead, from the workbench's side: told of what loads, and never missed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.events import CaseLanded, LogLine, Notice, RunFinished
from kernbench.worker import precompiler
from tests.sessions import Watched, gone, reached, write

pytestmark = pytest.mark.anyio


async def two_saves(it: Watched, folder: Path, idle: Callable[[], bool]) -> None:
    """A run, time to prepare, and another run."""
    await it.session.start()
    await it.ended(1)
    await reached(idle)
    write(folder, "TIME_US = 25.0")
    await it.ended(2)


async def test_it_is_told_of_every_source_that_loads(
    watched: Callable[..., Watched], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    monkeypatch.setenv("FAKE_BUILDER", str(told))
    it = watched()
    process = it.session.supervisor.builder
    await two_saves(it, folder, lambda: process.ready)
    await reached(told.exists)
    (request,) = [json.loads(line) for line in told.read_text().splitlines()]
    assert request["compiler"] == {"target": ["fake", 1, 32]}
    assert Path(request["source"]).name == it.session.logbook.journal.summaries[-1].source
    assert request["cases"][0] == "a"
    assert len(request["cases"]) == 6
    pid = process.pid
    assert pid is not None
    await it.session.close()
    assert gone(pid)


@pytest.mark.parametrize("todo", ["dies", "never ready", "leaves", "deaf"])
async def test_whatever_it_does_changes_nothing(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch, todo: str
) -> None:
    monkeypatch.setattr(precompiler, "START_S", 0.5)
    monkeypatch.setenv("FAKE_BUILDER", todo)
    it, pids = watched(), set()
    process = it.session.supervisor.builder

    def prepared() -> bool:
        pids.add(process.pid)
        return process.ready or process._failures > 0

    await two_saves(it, folder, prepared)
    finished = [event.summary for event in it.of(RunFinished)]  # type: ignore[attr-defined]
    assert [(summary.right, summary.geomean) for summary in finished] == [
        (True, pytest.approx(2.0)),
        (True, pytest.approx(4.0)),
    ]
    assert len(it.of(CaseLanded)) == 24
    assert not it.of(LogLine)
    assert not it.of(Notice)
    await it.session.close()
    assert all(gone(pid) for pid in pids if pid is not None)
    assert "loaded" not in it.session.logbook.journal.path.read_text()


async def test_one_that_always_dies_is_left_alone(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BUILDER", "dies")
    it = watched()
    process = it.session.supervisor.builder
    await it.session.run_once(iteration=False)
    for _ in range(precompiler.MOST_FAILURES + 2):
        await process.prepare(lambda: False)
    assert process.pid is None
    assert process._failures == precompiler.MOST_FAILURES


async def test_without_spares_there_is_none(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_BUILDER", str(tmp_path / "told"))
    it = watched(spares=False)
    await it.session.run_once(iteration=False)
    await it.session.supervisor.prepare_builder(lambda: False)
    assert it.session.supervisor.builder.pid is None
