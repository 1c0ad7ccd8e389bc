"""From a save or a key to its run: which one is run, which is entered, which waits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import watchfiles

from kernbench.engine.jobs import Job
from kernbench.events import (
    BuildFailed,
    Notice,
    RunCancelled,
    RunStarted,
    TaskLoaded,
)
from tests.sessions import Watched, reached, summaries, write

pytestmark = pytest.mark.anyio


async def test_a_save_is_an_iteration_and_a_comment_is_not(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.confirmed()
    write(folder, "TIME_US = 25.0")
    await it.confirmed(2)
    first, second = summaries(it)
    assert (first.iteration, second.iteration) == (1, 2)
    assert second.best
    assert second.best_geomean == pytest.approx(2.0)
    assert second.vs_best is not None
    assert second.vs_best.speedup == pytest.approx(2.0)
    write(folder, "TIME_US = 25.0  # the same, with a word about it")
    await it.until(lambda: any("comments" in event.text for event in it.of(Notice)))  # type: ignore[attr-defined]
    assert len(it.of(RunStarted)) == 2
    text = it.session.logbook.path.read_text()
    assert "## 1 · no hypothesis · 2.00x · first\n" in text
    assert "## 2 · no hypothesis · 4.00x · improved (best was 2.00x)\n" in text


async def test_what_a_task_lets_pass_is_noted_on_every_run(watched: Callable[..., Watched], folder: Path) -> None:
    write(folder, 'DO = "degenerate"')
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'TIME_US = 25.0\nDO = "degenerate"')
    await it.ended(2)
    assert [[finding.code for finding in run.findings] for run in summaries(it)] == [["degenerate"]] * 2
    assert summaries(it)[-1].right


async def test_newest_save_wins(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'TIME_US = 40.0\nDO = "slow"')
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    write(folder, "TIME_US = 30.0")
    await it.until(lambda: len(summaries(it)) >= 2)
    assert len(it.of(RunCancelled)) == 1
    assert summaries(it)[-1].geomean == pytest.approx(100 / 30)
    assert "2.50x" not in it.session.logbook.path.read_text()


async def test_pause_holds_saves_back(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    it.session.set_paused(True)
    write(folder, "TIME_US = 10.0")
    await reached(lambda: it.session.waits)
    await it.idle()
    assert it.session.waits
    assert len(it.of(RunStarted)) == 1
    it.session.set_paused(False)
    await it.ended(2)
    assert summaries(it)[-1].geomean == pytest.approx(10.0)


async def test_a_solution_that_is_gone_and_comes_back(watched: Callable[..., Watched], folder: Path) -> None:
    """It is said while it lasts; what was run before is not run again."""
    it = watched()
    await it.session.start()
    await it.ended(1)
    assert [event.reason for event in it.of(RunStarted)] == ["open"]  # type: ignore[attr-defined]
    text = (folder / "solution.py").read_text()
    (folder / "solution.py").unlink()
    await it.until(lambda: bool(it.of(BuildFailed)))
    [gone] = it.of(BuildFailed)
    assert gone.message.startswith("no such file")  # type: ignore[attr-defined]
    assert not gone.run  # type: ignore[attr-defined]
    (folder / "solution.py").write_text(text)
    await it.until(lambda: bool(it.of(TaskLoaded)))
    await it.idle()
    assert len(it.of(RunStarted)) == 1


async def test_a_comment_saved_while_the_source_runs_does_not_lose_it(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'TIME_US = 40.0\nDO = "slow"')
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    write(folder, 'TIME_US = 40.0\nDO = "slow"  # a word')
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].geomean == pytest.approx(2.5)
    assert summaries(it)[-1].iteration == 2


async def test_r_while_a_save_runs_keeps_its_entry(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'TIME_US = 40.0\nDO = "slow"')
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].iteration == 2
    it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 3)
    assert summaries(it)[-1].iteration is None


async def test_a_save_while_the_gpu_is_lent_out_gives_way_to_a_newer_one(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    await it.session.supervisor.lend_gpu()
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    write(folder, "TIME_US = 20.0")
    await reached(lambda: it.session._saves.waiting is not None)  # the watch has seen it
    it.session.supervisor.take_back_gpu()
    await it.until(lambda: len(summaries(it)) == 2)
    assert len(it.of(RunCancelled)) == 1
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_a_source_that_comes_back_while_another_runs_is_timed_again_without_an_entry(
    watched: Callable[..., Watched], folder: Path
) -> None:
    """Its rows have gone dim, and nothing would light them up."""
    it = watched()
    await it.session.start()
    await it.ended(1)
    good = (folder / "solution.py").read_text()
    await it.session.supervisor.lend_gpu()
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    (folder / "solution.py").write_text(good)
    await reached(lambda: it.session._saves.waiting is not None)  # the watch has seen it
    it.session.supervisor.take_back_gpu()
    await it.until(lambda: len(summaries(it)) == 2)
    first, again = summaries(it)
    assert len(it.of(RunCancelled)) == 1
    assert (again.source, first.iteration, again.iteration) == (first.source, 1, None)
    assert len(it.session.logbook.iterations()) == 1


async def test_where_nothing_can_be_watched_the_folder_is_polled(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a user's inotify instances may be taken by others."""

    async def none_left(*_: object, **__: object) -> AsyncIterator[object]:
        raise watchfiles._rust_notify.WatchfilesRustInternalError("error creating watcher: Too many open files")
        yield

    monkeypatch.setattr(watchfiles, "awatch", none_left)
    it = watched()
    await it.session.start()
    await it.ended(1)
    (said,) = it.of(Notice)
    assert "cannot watch the folder (error creating watcher: Too many open files)" in said.text  # type: ignore[attr-defined]
    for number in (2, 3, 4):  # within a second, in which times by the second would be the same
        write(folder, f"TIME_US = {number}0.0")
        await it.until(lambda number=number: len(summaries(it)) == number)  # type: ignore[misc]


async def test_a_name_that_is_not_utf8_is_a_file_like_another(watched: Callable[..., Watched], folder: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/\xff.cu"))
    odd.write_text("")
    it = watched()
    await it.session.start()
    await it.ended(1)
    odd.unlink()
    await it.ended(2)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: bool(summaries(it)) and summaries(it)[-1].geomean == pytest.approx(5.0))


async def test_a_save_while_a_profile_makes_way_comes_first(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    asked, free = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        asked.set()
        await free.wait()

    monkeypatch.setattr(it.session.explainer.profiler, "make_way", slowly)
    write(folder, "TIME_US = 40.0")
    await asked.wait()
    write(folder, "TIME_US = 20.0")
    await reached(lambda: it.session._saves.waiting is not None)
    free.set()
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_a_save_that_waits_is_told(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    it.session.set_paused(True)
    assert not it.session.waits
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: any("press space to run this save" in e.text for e in it.of(Notice)))  # type: ignore[attr-defined]
    assert it.session.waits
    before, saved = "def toy(): ...\nTIME_US = 50.0\n", (folder / "solution.py").read_text()
    for text, waits in ((before, False), (saved, True)):
        (folder / "solution.py").write_text(text)
        await reached(lambda waits=waits: it.session.waits == waits)  # type: ignore[misc]
    it.session.set_paused(False)
    await it.until(lambda: len(summaries(it)) == 2)
    assert not it.session.waits


async def test_a_save_gets_its_entry_however_often_a_key_begins_its_run_again(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'TIME_US = 20.0\nDO = "slow"')
    for begun in (2, 3, 4):
        await it.until(lambda begun=begun: len(it.of(RunStarted)) == begun)
        if begun < 4:
            it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 2)
    assert [summary.iteration for summary in summaries(it)] == [1, 2]
    it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 3)
    assert summaries(it)[-1].iteration is None


async def test_a_key_has_the_save_that_waits_run_and_entered(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    it.session.set_paused(True)
    it.session.notes.set_hypothesis(None, "twenty")
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: any("press space to run this save" in e.text for e in it.of(Notice)))  # type: ignore[attr-defined]
    it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 2)
    entered = summaries(it)[-1]
    assert (entered.iteration, entered.hypothesis) == (2, "twenty")
    assert it.session.paused
    write(folder, "TIME_US = 20.0  # a comment")
    await reached(lambda: it.session.waits)
    it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 3)
    assert summaries(it)[-1].iteration is None
    assert not it.session.waits
    it.session.set_paused(False)
    await it.idle()
    assert len(summaries(it)) == 3


async def test_a_save_that_no_watch_tells_of_is_found(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network's disk it may come from another machine."""

    async def blind(*_: object, **__: object) -> AsyncIterator[set[object]]:
        while True:
            await asyncio.sleep(0.05)
            yield set()

    monkeypatch.setattr(watchfiles, "awatch", blind)
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)


async def test_a_source_that_comes_back_before_its_turn_is_not_forgotten(
    watched: Callable[..., Watched], folder: Path
) -> None:
    """Its run was broken off for the save that is undone now."""
    it = watched()
    await it.session.start()
    await it.ended(1)
    slow = 'TIME_US = 20.0\nDO = "slow"'
    write(folder, slow)
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    saves = it.session._saves
    assert saves.source is not None
    saves.add(Job("save", 0.0, iteration=True))  # another save, undone before it was read
    saves.folder_changed(saves.look(), seen=True, running=True)
    assert saves.waiting is not None
