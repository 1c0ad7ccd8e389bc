"""The engine over the fake harness: saves, failures, best, stall, the log."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from harness.shared import taskfile
from kernbench import report
from kernbench.engine.jobs import Job, Options
from kernbench.engine.runner import Order
from kernbench.engine.session import Session
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Notice,
    RunCancelled,
    RunFinished,
    RunStarted,
    Summary,
    TaskLoaded,
)
from kernbench.log.runs import comparison
from kernbench.log.runs.runs_file import JournalError, RunsFile
from kernbench.task import snapshot
from kernbench.tui.state.board import Board
from tests.engine.conftest import FAKE, Watched, write

pytestmark = pytest.mark.anyio


def summaries(watched: Watched) -> list[Summary]:
    return [event.summary for event in watched.of(RunFinished)]  # type: ignore[attr-defined]


async def test_a_run_lands_every_case_and_is_summed_up(watched: Callable[..., Watched]) -> None:
    it = watched()
    summary = await it.session.run_once(iteration=False)
    assert isinstance(summary, Summary)
    assert summary.geomean == pytest.approx(2.0)
    assert summary.right
    assert summary.best
    assert summary.counts == {"ok": 6, "faster": 3, "headline": 3}
    assert {event.result.id for event in it.of(CaseLanded)} == {
        "a",
        "b",
        "c",
        "grid:rows=1",
        "grid:rows=2",
        "grid:rows=3",
    }
    assert summary.iteration is None
    assert not it.session.logbook.path.exists()


async def test_a_save_is_an_iteration_and_a_comment_is_not(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, "TIME_US = 25.0")
    await it.ended(2)
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


async def test_opening_again_times_without_a_new_entry(watched: Callable[..., Watched], folder: Path) -> None:
    first = watched()
    await first.session.run_once(iteration=True)
    before = first.session.logbook.path.read_bytes()
    again = watched()
    await again.session.start()
    await again.ended(1)
    assert summaries(again)[0].iteration is None
    assert summaries(again)[0].repeats == 1
    assert first.session.logbook.path.read_bytes() == before


async def test_a_state_folder_that_was_removed_is_made_again_and_hidden(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    shutil.rmtree(it.session.state)
    write(folder, "TIME_US = 40.0")
    await it.ended(2)
    assert (it.session.state / ".gitignore").read_text() == "*\n"


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


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ('DO = "crash"\nON = "b"', "crashed", "the worker segfaulted while checking"),
        ('DO = "exit"\nON = "b"', "crashed", "the worker exited with code 0 while checking"),
        ('DO = "hang"\nON = "b"', "timeout", "no end after 1 s while checking; stopped"),
        ('DO = "wrong"\nON = "b"', "wrong", "out differs at [0]: got 1, expected 2"),
        ('DO = "raise"\nON = "b"', "runtime_error", "ValueError: no"),
        ('DO = "cuda"\nON = "b"', "runtime_error", "ValueError: no"),
    ],
)
async def test_a_bad_row_is_named_and_the_next_save_is_served(
    watched: Callable[..., Watched], folder: Path, text: str, status: str, words: str
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, text)
    await it.ended(2)
    bad = summaries(it)[-1]
    row = it.session.logbook.journal.last_cases["b"]
    assert (row.status, row.detail) == (status, words)
    assert row.reason == {"crashed": "worker_crashed", "timeout": "worker_timeout"}.get(status)
    assert not bad.right
    assert not bad.best
    assert row.solution_us is None
    write(folder, "TIME_US = 20.0")
    await it.ended(3)
    assert summaries(it)[-1].right
    assert summaries(it)[-1].geomean == pytest.approx(5.0)
    word = {"runtime_error": "error"}.get(status, status)
    assert f"· {word} (best was 2.00x)" in it.session.logbook.path.read_text()


async def test_a_crash_skips_the_rows_not_reached(watched: Callable[..., Watched], folder: Path) -> None:
    write(folder, 'DO = "crash"\nON = "b"')
    it = watched()
    summary = await it.session.run_once(iteration=False)
    assert isinstance(summary, Summary)
    rows = it.session.logbook.journal.last_cases
    assert rows["a"].status == "ok"
    assert (rows["c"].reason, rows["c"].detail) == ("after_crash", "not run: crashed on b")
    assert not summary.best
    assert (summary.geomean, summary.worst, summary.ratio) == (None, None, None)


async def test_what_a_crash_kept_from_running_is_not_counted_as_wrong(
    watched: Callable[..., Watched], folder: Path
) -> None:
    write(folder, 'DO = "crash"\nON = "b"')
    it = watched()
    summary = await it.session.run_once(iteration=True)
    assert isinstance(summary, Summary)
    text = it.session.logbook.path.read_text()
    assert text.startswith("# Iterations of toy\n\n## 1 · no hypothesis · crashed\n")
    assert "- result: 1/2 right, 1 crashed, 4 not run; b: the worker " in text
    assert "| c | - | - | - | not run | - |\n" in text
    assert text.endswith("\n\n3 check cases not run.\n")
    assert "geomean" not in text
    assert report.outcome(summary).startswith("not right: no speedup · 1/2 right, 1 crashed, 4 not run · entry 1")
    assert report.table(it.session.task, it.session.logbook.journal.last_cases)[-2:] == [
        "3 check cases not run",
        "not run: 4 (crashed on b)",
    ]


@pytest.mark.parametrize(
    ("text", "status"),
    [('DO = "syntax"', "build_error"), ('DO = "hang_load"', "timeout"), ('DO = "crash_load"', "crashed")],
)
async def test_failed_builds_are_counted_into_the_next_entry(
    watched: Callable[..., Watched], folder: Path, text: str, status: str
) -> None:
    it = watched()
    write(folder, text)
    failure = await it.session.run_once(iteration=True)
    assert isinstance(failure, BuildFailed)
    assert failure.status == status
    assert not it.session.logbook.path.exists()
    write(folder, "TIME_US = 50.0")
    summary = await it.session.run_once(iteration=True)
    assert isinstance(summary, Summary)
    assert summary.failed_builds == 1
    assert "after 1 failed build\n" in it.session.logbook.path.read_text()


async def test_three_iterations_without_a_best_are_a_stall(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    stalled = []
    for time_us in (50.0, 51.0, 52.0, 53.0, 20.0, 21.0):
        write(folder, f"TIME_US = {time_us}")
        summary = await it.session.run_once(iteration=True)
        assert isinstance(summary, Summary)
        stalled.append(summary.stalled)
    assert stalled == [False, False, False, True, False, False]
    assert "- stalled: 3 iterations without a new best" in it.session.logbook.path.read_text()


async def test_a_flood_of_prints_is_counted_not_kept(watched: Callable[..., Watched], folder: Path) -> None:
    from kernbench.events import LogLine

    write(folder, 'DO = "flood"\nON = "a"')
    it = watched()
    summary = await it.session.run_once(iteration=False)
    assert isinstance(summary, Summary)
    assert summary.right
    await it.session.close()
    lines = [event.text for event in it.of(LogLine)]  # type: ignore[attr-defined]
    assert len(lines) < 5000
    assert any("were not kept" in line for line in lines)


async def test_pause_holds_saves_back(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    it.session.set_paused(True)
    write(folder, "TIME_US = 10.0")
    await asyncio.sleep(0.5)
    assert len(it.of(RunStarted)) == 1
    it.session.set_paused(False)
    await it.ended(2)
    assert summaries(it)[-1].geomean == pytest.approx(10.0)


async def test_a_changed_task_starts_a_new_series(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    (folder / "task.toml").write_text((folder / "task.toml").read_text() + "\n[tolerance]\nfloat32 = { atol = 1.0 }\n")
    await it.ended(2)
    assert any("new series" in event.text for event in it.of(Notice))  # type: ignore[attr-defined]
    assert summaries(it)[-1].best_geomean is None
    (folder / "task.toml").write_text("entry = 3")
    await it.until(lambda: bool(it.of(BuildFailed)))
    [bad] = it.of(BuildFailed)
    assert (str(bad.where), bad.status) == ("task.toml", "bad_task")  # type: ignore[attr-defined]
    assert bad.message.startswith("entry: ")  # type: ignore[attr-defined]


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
    assert gone.message.startswith("there is no such file")  # type: ignore[attr-defined]
    assert not gone.run  # type: ignore[attr-defined]
    (folder / "solution.py").write_text(text)
    await it.until(lambda: bool(it.of(TaskLoaded)))
    await asyncio.sleep(0.3)
    assert len(it.of(RunStarted)) == 1


def say(it: Watched, text: str) -> str:
    remarks = it.session.remarks
    return remarks.set_hypothesis(remarks.hypothesis_for(), text)


async def test_words_go_to_the_entry_they_belong_to(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    say(it, "16-byte loads\nhalve the instructions")
    await it.session.run_once(iteration=True)
    text = it.session.logbook.path.read_text()
    assert "## 1 · 16-byte loads halve the instructions · 2.00x" in text
    assert "- hypothesis: 16-byte loads\n  halve the instructions\n" in text
    assert it.session.remarks.set_next("eight rows") == "entry 1 was updated"
    assert "- next: eight rows\n" in it.session.logbook.path.read_text()
    write(folder, "TIME_US = 51.0")
    await it.session.run_once(iteration=True)
    assert say(it, "said afterwards") == "entry 2 was updated"
    assert "## 2 · said afterwards ·" in it.session.logbook.path.read_text()
    assert "the next run" in say(it, "for later")
    again = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=FAKE))
    assert [item.hypothesis for item in again.logbook.iterations()][1] == "said afterwards"
    assert again.logbook.iterations()[0].next == "eight rows"


async def test_the_next_step_goes_to_the_last_entry_after_reopening(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.run_once(iteration=True)
    path = it.session.logbook.path

    def reopened(state: str) -> Session:
        return Session(taskfile.load(folder), folder / state, Options(harness=FAKE))

    assert reopened("elsewhere").remarks.next_now() == ""
    assert reopened(".kernbench").remarks.set_next("eight rows") == "entry 1 was updated"
    assert reopened(".kernbench").remarks.next_now() == "eight rows"
    assert reopened("elsewhere").remarks.next_now() == "eight rows"  # is there to be edited, and so is not lost
    assert reopened(".kernbench").logbook.iterations()[0].next == "eight rows"
    assert reopened("elsewhere").remarks.set_next("ten rows") == "entry 1 was updated"  # the log came without its runs
    assert "- next: ten rows\n" in path.read_text()
    assert reopened(".kernbench").remarks.next_now() == "ten rows"
    assert reopened(".kernbench").remarks.set_next("twelve rows") == "entry 1 was updated"
    path.write_text(path.read_text().replace("- next: twelve rows\n", "- next: mine\n- next: and this\n"))
    assert "changed by hand" in reopened("elsewhere").remarks.set_next("fourteen rows")
    assert "fourteen rows" not in path.read_text()


async def test_a_hypothesis_given_while_the_run_is_on_belongs_to_it(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'TIME_US = 40.0\nDO = "slow"')
    await it.until(lambda: it.session.running is not None and len(it.of(RunStarted)) == 2)
    say(it, "typed meanwhile")
    await it.ended(2)
    await it.until(lambda: it.session.remarks.hypothesis == "")
    assert it.session.logbook.iterations()[-1].hypothesis == "typed meanwhile"
    assert "- hypothesis: typed meanwhile\n" in it.session.logbook.path.read_text()


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


async def test_a_baseline_that_is_gone_is_said_and_the_next_save_served(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    it.session.set_baseline("best")
    await it.ended(2)
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): return 1\ndef toy(): ...\n")
    await it.until(lambda: any("no best yet" in event.text for event in it.of(Notice)))  # type: ignore[attr-defined]
    it.session.set_baseline("eager")
    await it.ended(3)
    assert summaries(it)[-1].geomean == pytest.approx(2.0)


async def test_a_save_while_the_gpu_is_lent_out_gives_way_to_a_newer_one(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    await it.session.supervisor.hold()
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    write(folder, "TIME_US = 20.0")
    await asyncio.sleep(0.5)  # the watch has seen it
    it.session.supervisor.release()
    await it.until(lambda: len(summaries(it)) == 2)
    assert len(it.of(RunCancelled)) == 1
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_a_save_that_cannot_be_kept_says_so_until_the_next(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    take, full = snapshot.take, OSError(28, "No space left on device", "/state/sources")

    def refuse(folder: Path, state: Path) -> snapshot.Source:
        raise full

    monkeypatch.setattr(snapshot, "take", refuse)
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    failure = it.of(BuildFailed)[0]
    said = "nothing was run: /state/sources: No space left on device; save again when that is mended"
    assert failure.message == said  # type: ignore[attr-defined]
    monkeypatch.setattr(snapshot, "take", take)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_the_source_of_the_last_run_is_taken_back_after_a_save_that_could_not_be_kept(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures stand already; what is on the screen must no longer say that nothing was run."""
    it = watched()
    await it.session.start()
    await it.ended(1)
    take, before = snapshot.take, (folder / "solution.py").read_text()

    def refuse(folder: Path, state: Path) -> snapshot.Source:
        raise OSError(28, "No space left on device", "/state/sources")

    monkeypatch.setattr(snapshot, "take", refuse)
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    monkeypatch.setattr(snapshot, "take", take)
    (folder / "solution.py").write_text(before)
    await it.until(lambda: bool(it.of(TaskLoaded)))
    assert len(summaries(it)) == 1


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
    second.session.changed_elsewhere()
    assert second.session.is_alone  # by now
    third = watched()
    await third.session.start()
    assert warned(third) == [said]
    second.session.changed_elsewhere()
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
    open_one.session.changed_elsewhere()
    assert open_one.session.is_alone
    assert not shell.of(Notice)


async def test_a_listener_that_fails_costs_no_run_and_is_told_of_at_the_end(
    watched: Callable[..., Watched], folder: Path
) -> None:
    def full(event: object) -> None:
        heard.append(event)
        raise OSError(28, "No space left on device")

    heard: list[object] = []
    it = watched()
    it.session.listen(full)
    with pytest.raises(OSError, match="No space left"):
        await it.session.run_once(iteration=True)
    assert len(heard) == 1
    assert [run.iteration for run in it.session.logbook.journal.summaries] == [1]
    assert [event.summary.iteration for event in it.of(RunFinished)] == [1]  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="No space left"):
        await it.session.closed()


async def test_a_source_that_comes_back_while_another_runs_is_timed_again_without_an_entry(
    watched: Callable[..., Watched], folder: Path
) -> None:
    """Its rows have gone dim, and nothing would light them up."""
    it = watched()
    await it.session.start()
    await it.ended(1)
    good = (folder / "solution.py").read_text()
    await it.session.supervisor.hold()
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    (folder / "solution.py").write_text(good)
    await asyncio.sleep(0.5)  # the watch has seen it
    it.session.supervisor.release()
    await it.until(lambda: len(summaries(it)) == 2)
    first, again = summaries(it)
    assert len(it.of(RunCancelled)) == 1
    assert (again.source, first.iteration, again.iteration) == (first.source, 1, None)
    assert len(it.session.logbook.iterations()) == 1


async def test_a_timeout_dethrones_nobody_but_a_wrong_result_does(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.run_once(iteration=True)
    best = it.session.logbook.journal.summaries[-1]
    series = [best, replace(best, right=False, best=False, counts={"timeout": 1, "ok": 5})]
    assert comparison.best_of(series) is best
    assert comparison.best_of([*series, replace(best, right=False, best=False, counts={"wrong": 1})]) is None


async def test_a_best_that_is_timed_again_keeps_its_number_and_is_no_attempt(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    ended = []
    for text in ("TIME_US = 50.0", "TIME_US = 40.0", "TIME_US = 40.0", "TIME_US = 45.0", "TIME_US = 40.0"):
        write(folder, text)
        ended.append(await it.session.run_once(iteration=True))
    runs = [run for run in ended if isinstance(run, Summary)]
    assert [(run.repeats, run.stalled, run.streak) for run in runs] == [
        (None, False, 0), (None, False, 0), (2, False, 0), (None, False, 1), (2, False, 0),
    ]  # fmt: skip
    best = comparison.best_of(runs)
    assert best is not None
    assert (best.iteration, [run.best for run in runs]) == (2, [True, True, True, False, True])


async def test_what_another_process_enters_is_noticed_once(watched: Callable[..., Watched], folder: Path) -> None:
    here, there = watched(), watched()
    await here.session.run_once(iteration=True)
    assert len(here.session.logbook.iterations()) == 1
    assert not here.session.changed_elsewhere()
    write(folder, "TIME_US = 20.0")
    await there.session.run_once(iteration=True)
    assert here.session.changed_elsewhere()
    assert [run.iteration for run in here.session.logbook.iterations()] == [1, 2]
    assert not here.session.changed_elsewhere()
    log = here.session.logbook.path
    log.write_text(log.read_text() + "\nA line of my own.\n")
    assert here.session.changed_elsewhere()
    assert len(here.session.logbook.iterations()) == 2
    assert not here.session.changed_elsewhere()


async def test_no_device_is_one_sentence(watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_UNUSABLE", "1")
    it = watched()
    assert await it.session.run_once(iteration=False) is None
    assert it.session.problem is not None
    assert it.session.problem.code == "no_device"


async def test_nothing_is_left_running(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    await it.until(lambda: True)
    while len(it.session.supervisor.pids) < 2:
        await asyncio.sleep(0.02)
    pids = it.session.supervisor.pids
    await it.session.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_best_that_another_process_made_counts(folder: Path, watched: Callable[..., Watched]) -> None:
    """Two workbenches on one task: both know what the other has finished when they judge."""
    mine, other = watched(), watched()
    write(folder, "TIME_US = 50.0")
    await mine.session.run_once(iteration=True)
    write(folder, "TIME_US = 10.0")
    fast = await other.session.run_once(iteration=True)
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
    assert not mine.session.logbook.journal.take_in()


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
    assert "because it cannot be watched: error creating watcher: Too many open files" in said.text  # type: ignore[attr-defined]
    for number in (2, 3, 4):  # within a second, in which times by the second would be the same
        write(folder, f"TIME_US = {number}0.0")
        await it.until(lambda number=number: len(summaries(it)) == number)  # type: ignore[misc]


async def test_a_name_that_is_not_utf8_is_a_file_like_another(watched: Callable[..., Watched], folder: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py"))
    odd.write_text("")
    it = watched()
    await it.session.start()
    await it.ended(1)
    odd.unlink()
    await it.ended(2)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: bool(summaries(it)) and summaries(it)[-1].geomean == pytest.approx(5.0))


@pytest.mark.parametrize("event", ["start", "case", "finished"])
async def test_a_run_that_the_disk_broke_off_ends_on_the_screen_and_the_next_save_counts(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    it = watched()
    board = Board(it.session.task)
    it.session.listen(board.take)
    await it.session.start()
    await it.ended(1)
    append = RunsFile.append

    def full(file: RunsFile, line: str) -> int:
        if f'"event":"{event}"' in line:
            raise JournalError("runs.jsonl cannot be written: No space left on device; the run is not recorded")
        return append(file, line)

    monkeypatch.setattr(RunsFile, "append", full)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    assert board.run is None
    assert board.failure is not None
    assert board.failure.message.endswith("the run is not recorded; save again when that is mended")
    monkeypatch.setattr(RunsFile, "append", append)
    (folder / "solution.py").touch()  # the very same text
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_a_mistake_of_ours_costs_one_save(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    it = watched()
    await it.session.start()
    await it.ended(1)
    order = Session._order

    def fails(*_: object) -> Order:
        raise ZeroDivisionError("no such number")

    monkeypatch.setattr(Session, "_order", fails)
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    assert "kernbench itself failed: ZeroDivisionError: no such number" in it.of(BuildFailed)[0].message  # type: ignore[attr-defined]
    monkeypatch.setattr(Session, "_order", order)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)


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
    async with asyncio.timeout(15):
        while it.session._agenda.waiting is None:  # nothing is said of it
            await asyncio.sleep(0.01)
    free.set()
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_cases_that_are_only_checked_belong_to_the_whole(watched: Callable[..., Watched], folder: Path) -> None:
    """All that is timed, and right, is not best where a pattern left out what is wrong."""
    write(folder, 'TIME_US = 10.0\nDO = "wrong"\nON = "grid:rows=2"')
    it = watched(case="?")
    ending = await it.session.run_once(iteration=True)
    assert isinstance(ending, Summary)
    assert {event.result.id for event in it.of(CaseLanded)} == {"a", "b", "c"}  # type: ignore[attr-defined]
    assert ending.right
    assert not ending.complete
    assert not ending.best
    whole = await watched(case="*").session.run_once(iteration=True)
    assert isinstance(whole, Summary)
    assert whole.complete
    assert not whole.right


async def test_a_folder_that_was_moved_away_is_not_made_again(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    folder.rename(folder.with_name("moved"))
    await it.until(lambda: bool(it.of(BuildFailed)))
    assert not folder.exists()
    folder.with_name("moved").rename(folder)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)


async def test_a_save_that_waits_is_told(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    it.session.set_paused(True)
    assert not it.session.waits
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: any("the save waits" in e.text for e in it.of(Notice)))  # type: ignore[attr-defined]
    assert it.session.waits
    before, saved = "def toy(): ...\nTIME_US = 50.0\n", (folder / "solution.py").read_text()
    for text, waits in ((before, False), (saved, True)):
        (folder / "solution.py").write_text(text)
        async with asyncio.timeout(15):
            while it.session.waits != waits:  # nothing is said of it
                await asyncio.sleep(0.01)
    it.session.set_paused(False)
    await it.until(lambda: len(summaries(it)) == 2)
    assert not it.session.waits


async def test_a_state_folder_that_cannot_be_written_is_named_with_its_reason_first(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    it.session.state.mkdir(exist_ok=True)
    (it.session.state / "sources").touch()  # no folder can be made there, by root neither
    await it.session.start()
    await it.until(lambda: bool(it.of(BuildFailed)))
    (failed,) = it.of(BuildFailed)
    assert isinstance(failed, BuildFailed)
    assert failed.message == (
        f"nothing was run (File exists): {it.session.state} cannot be written; `--state DIR` keeps the runs elsewhere;"
        " save again when that is mended"
    )
    (it.session.state / "sources").unlink()
    async with asyncio.timeout(15):
        while not summaries(it):  # the watch may have begun after the first of them
            write(folder, f"TIME_US = {20.0 + len(list(it.session.state.glob('sources/*')))}")
            await asyncio.sleep(0.3)


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
    it.session.remarks.set_hypothesis(None, "twenty")
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: any("the save waits" in e.text for e in it.of(Notice)))  # type: ignore[attr-defined]
    it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 2)
    entered = summaries(it)[-1]
    assert (entered.iteration, entered.hypothesis) == (2, "twenty")
    assert it.session.paused
    write(folder, "TIME_US = 20.0  # a comment")
    async with asyncio.timeout(15):
        while not it.session.waits:
            await asyncio.sleep(0.01)
    it.session.rerun()
    await it.until(lambda: len(summaries(it)) == 3)
    assert summaries(it)[-1].iteration is None
    assert not it.session.waits
    it.session.set_paused(False)
    await asyncio.sleep(0.3)
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


async def test_what_a_broken_run_writes_does_not_start_it_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs may be kept in a folder of the task that is not hidden, and logs redirected into it."""
    (folder / "mine").mkdir()
    it = Watched(Session(taskfile.load(folder), folder / "mine", Options(harness=FAKE)))
    await it.session.start()
    await it.ended(1)
    append = RunsFile.append

    def full(file: RunsFile, line: str) -> int:
        if '"event":"finished"' in line:
            raise JournalError("runs.jsonl cannot be written: No space left on device")
        return append(file, line)

    monkeypatch.setattr(RunsFile, "append", full)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    for number in range(5):
        (folder / "watch.log").write_text(f"{number}")
        await asyncio.sleep(0.1)
    assert len(it.of(BuildFailed)) == 1
    (folder / "solution.py").touch()
    await it.until(lambda: len(it.of(BuildFailed)) == 2)
    await it.session.close()


async def test_a_log_that_is_away_for_a_moment_costs_no_run(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    journal, path = it.session.logbook.journal, it.session.logbook.path
    finish = journal.finish

    def away(*words: Any) -> None:
        finish(*words)
        path.rename(path.with_suffix(".away"))

    monkeypatch.setattr(journal, "finish", away)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)
    assert not it.of(BuildFailed)
    path.with_suffix(".away").rename(path)
    assert [item.iteration for item in it.session.logbook.iterations()] == [1, 2]


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
    agenda = it.session._agenda
    assert agenda.last is not None
    agenda.put(Job("save", 0.0, iteration=True))  # another save, undone before anybody took it
    agenda.drop_save()
    assert agenda.waiting is not None


async def _begun_while_held(it: Watched) -> object:
    await it.session.supervisor.hold()
    return await it.session.run_once(iteration=True)


async def test_of_two_runs_of_one_new_source_at_once_one_is_the_first(watched: Callable[..., Watched]) -> None:
    one, two = watched(), watched()
    both = asyncio.gather(*(_begun_while_held(it) for it in (one, two)))
    await asyncio.gather(*(it.until(lambda it=it: bool(it.of(RunStarted))) for it in (one, two)))  # type: ignore[misc]
    for it in (one, two):
        it.session.supervisor.release()
    runs = await both
    first, second = sorted((run for run in runs if isinstance(run, Summary)), key=lambda run: run.iteration or 0)
    assert (first.repeats, first.took_over) == (None, True)
    assert (second.repeats, second.took_over) == (1, False)
    assert one.session.logbook.path.read_text().count("· first") == 1


async def test_a_best_made_meanwhile_is_not_beaten_by_what_was_timed_beside_another(
    watched: Callable[..., Watched], folder: Path
) -> None:
    mine, other = watched(), watched()
    await mine.session.run_once(iteration=True)
    write(folder, 'TIME_US = 40.0\nDO = "slow"')
    running = asyncio.create_task(mine.session.run_once(iteration=True))
    await mine.until(lambda: len(mine.of(RunStarted)) == 2)
    await mine.session.supervisor.hold()
    write(folder, "TIME_US = 20.0")
    fast = await other.session.run_once(iteration=True)
    mine.session.supervisor.release()
    late = await running
    assert isinstance(fast, Summary)
    assert isinstance(late, Summary)
    assert (fast.best, late.best, late.not_best) == (True, False, "it was not timed beside the best")
    assert late.best_geomean == pytest.approx(5.0)
    assert late.vs_best is None


async def test_the_command_of_an_entry_names_the_folder(watched: Callable[..., Watched], folder: Path) -> None:
    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace('name = "toy"', 'name = "real name"'))
    run = await watched().session.run_once(iteration=True)
    assert isinstance(run, Summary)
    assert run.command == f"kernbench run {folder.name}"
