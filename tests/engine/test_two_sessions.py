"""Two processes on one task: both know of each other, and of what the other has finished."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.events import Confirmed, Notice, RunStarted, Summary
from kernbench.log.runs.series import best_of
from tests.sessions import Watched, run_and_confirm, summaries, write

pytestmark = pytest.mark.anyio


async def test_two_workbenches_on_a_task_are_told_of_each_other(watched: Callable[..., Watched], folder: Path) -> None:
    def warned(it: Watched) -> list[str]:
        return [event.text for event in it.of(Notice) if "another workbench" in event.text]  # type: ignore[attr-defined]

    first, second = watched(), watched()
    await first.session.start()
    await first.ended(1)
    assert (warned(first), first.session.is_alone) == ([], True)
    await second.session.start()
    (said,) = warned(second)
    assert f"(process {os.getpid()})" in said
    assert not second.session.is_alone
    await second.ended(1)
    for time_us in (20.0, 10.0):
        write(folder, f"TIME_US = {time_us}")
        await first.until(lambda time_us=time_us: summaries(first)[-1].geomean == pytest.approx(100 / time_us))  # type: ignore[misc]
        await second.until(lambda time_us=time_us: summaries(second)[-1].geomean == pytest.approx(100 / time_us))  # type: ignore[misc]
    assert warned(first) == [said]
    assert not first.session.is_alone
    await first.session.close()
    await second.session.changed_elsewhere()
    assert second.session.is_alone  # by now
    third = watched()
    await third.session.start()
    assert warned(third) == [said]
    await second.session.changed_elsewhere()
    assert warned(second) == [said, said]  # another one has come
    for it in (second, third):
        await it.session.close()
    fourth = watched()
    await fourth.session.start()
    assert warned(fourth) == []


async def test_a_run_from_the_shell_is_no_workbench(watched: Callable[..., Watched]) -> None:
    open_one, shell = watched(), watched()
    await open_one.session.start()
    await open_one.ended(1)
    await shell.session.run_once(iteration=False)
    await open_one.session.changed_elsewhere()
    assert open_one.session.is_alone
    assert not shell.of(Notice)


async def test_what_another_process_enters_is_noticed_once(watched: Callable[..., Watched], folder: Path) -> None:
    here, there = watched(), watched()
    await here.session.run_once(iteration=True)
    assert len(here.session.logbook.iterations()) == 1
    assert not await here.session.changed_elsewhere()
    write(folder, "TIME_US = 20.0")
    await there.session.run_once(iteration=True)
    assert await here.session.changed_elsewhere()
    assert [run.iteration for run in here.session.logbook.iterations()] == [1, 2]
    assert not await here.session.changed_elsewhere()
    log = here.session.logbook.path
    log.write_text(log.read_text() + "\nA line of my own.\n")
    assert await here.session.changed_elsewhere()
    assert len(here.session.logbook.iterations()) == 2
    assert not await here.session.changed_elsewhere()


async def test_a_best_that_another_process_made_counts(folder: Path, watched: Callable[..., Watched]) -> None:
    """Two workbenches on one task: both know what the other has finished when they judge."""
    mine, other = watched(), watched()
    write(folder, "TIME_US = 50.0")
    await run_and_confirm(mine.session, iteration=True)
    write(folder, "TIME_US = 10.0")
    fast = await run_and_confirm(other.session, iteration=True)
    write(folder, "TIME_US = 30.0")
    middle = await mine.session.run_once(iteration=True)
    assert isinstance(fast, Summary)
    assert isinstance(middle, Summary)
    assert (fast.best, middle.best) == (True, False)
    started = mine.of(RunStarted)[-1]
    assert isinstance(started, RunStarted)
    assert started.best == fast.source
    assert [item.iteration for item in mine.session.logbook.iterations()] == [1, 2, 3]
    assert mine.session.logbook.journal.cases_of(fast.run) == other.session.logbook.journal.cases_of(fast.run) != {}
    assert not mine.session.logbook.journal.read_new()


async def _begun_while_held(it: Watched) -> object:
    await it.session.supervisor.lend_gpu()
    return await it.session.run_once(iteration=True)


async def test_of_two_runs_of_one_new_source_at_once_one_is_the_first(watched: Callable[..., Watched]) -> None:
    one, two = watched(), watched()
    both = asyncio.gather(*(_begun_while_held(it) for it in (one, two)))
    await asyncio.gather(*(it.until(lambda it=it: bool(it.of(RunStarted))) for it in (one, two)))  # type: ignore[misc]
    for it in (one, two):
        it.session.supervisor.take_back_gpu()
    runs = await both
    first, second = sorted((run for run in runs if isinstance(run, Summary)), key=lambda run: run.iteration or 0)
    assert (first.repeats, second.repeats) == (None, 1)
    assert one.session.logbook.path.read_text().count("· best?") == 2
    await two.session.confirm()
    await one.session.confirm()
    assert [len(it.of(Confirmed)) for it in (one, two)] == [1, 2]  # each confirms its own, whatever the other says
    await two.session.changed_elsewhere()
    for it in (one, two):
        runs = it.session.logbook.journal.summaries
        assert [run.holds for run in runs] == [True, True]
    best = best_of(runs)
    assert best is not None
    assert (best.run, best.iteration) == (first.run, 1)


async def test_a_best_made_meanwhile_is_not_beaten_by_what_was_timed_beside_another(
    watched: Callable[..., Watched], folder: Path
) -> None:
    mine, other = watched(), watched()
    await run_and_confirm(mine.session, iteration=True)
    write(folder, 'TIME_US = 40.0\nDO = "slow"')
    running = asyncio.create_task(mine.session.run_once(iteration=True))
    await mine.until(lambda: len(mine.of(RunStarted)) == 2)
    await mine.session.supervisor.lend_gpu()
    write(folder, "TIME_US = 20.0")
    fast = await run_and_confirm(other.session, iteration=True)
    mine.session.supervisor.take_back_gpu()
    late = await running
    assert isinstance(fast, Summary)
    assert isinstance(late, Summary)
    assert (fast.best, late.best, late.not_best) == (True, False, "it was not timed against the best")
    assert late.best_geomean == pytest.approx(5.0)
    assert late.vs_best is None
