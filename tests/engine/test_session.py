"""The engine over the fake harness: one run, its rows, its verdict and its place in the series."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernbench import report
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Notice,
    Summary,
)
from kernbench.log.runs.series import best_of
from kernbench.worker.deadlines import Deadlines
from tests.sessions import HASTY, PATIENT, Watched, reached, run_and_confirm, summaries, write

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ('DO = "crash"\nON = "b"', "crashed", "the worker segfaulted while checking"),
        ('DO = "exit"\nON = "b"', "crashed", "the worker exited with code 0 while checking"),
        ('DO = "hang"\nON = "b"', "timeout", "timed out after 1 s while checking"),
        ('DO = "wrong"\nON = "b"', "wrong", "out differs at [0]: got 1, expected 2"),
        ('DO = "raise"\nON = "b"', "runtime_error", "ValueError: no"),
        ('DO = "cuda"\nON = "b"', "runtime_error", "ValueError: no"),
    ],
)
async def test_a_bad_row_is_named_and_the_next_save_is_served(
    watched: Callable[..., Watched], folder: Path, text: str, status: str, words: str
) -> None:
    it = watched(deadlines=HASTY if status == "timeout" else PATIENT)
    await it.session.start()
    await it.confirmed()
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
    assert (rows["c"].reason, rows["c"].detail) == ("after_crash", "not run: the worker crashed on b")
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
    assert "- result: b: the worker segfaulted while checking; 1/2 passed, 1 crashed, 4 not run\n" in text
    assert "\n|" not in text  # no table
    assert "geomean" not in text
    assert report.outcome(summary).startswith("failed: speedup withheld · 1/2 passed, 1 crashed, 4 not run · entry 1")
    assert report.table(it.session.task, it.session.logbook.journal.last_cases)[-2:] == [
        "3 check cases not run",
        "not run: 4 (the worker crashed on b)",
    ]


@pytest.mark.parametrize(
    ("text", "status"),
    [('DO = "syntax"', "build_error"), ('DO = "hang_load"', "timeout"), ('DO = "crash_load"', "crashed")],
)
async def test_failed_builds_are_counted_into_the_next_entry(
    watched: Callable[..., Watched], folder: Path, text: str, status: str
) -> None:
    it = watched(deadlines=HASTY if status == "timeout" else PATIENT)
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
        summary = await run_and_confirm(it.session, iteration=True)
        assert isinstance(summary, Summary)
        stalled.append(summary.stalled)
    assert stalled == [False, False, False, True, False, False]
    assert "- stalled: 3 iterations without a new best" in it.session.logbook.path.read_text()


async def test_a_flood_of_prints_is_counted_not_kept(watched: Callable[..., Watched], folder: Path) -> None:
    from kernbench.events import LogLine

    write(folder, 'DO = "flood"\nON = "a"')
    it = watched(deadlines=Deadlines())
    summary = await it.session.run_once(iteration=False)
    assert isinstance(summary, Summary)
    assert summary.right
    await it.session.close()
    lines = [event.text for event in it.of(LogLine)]  # type: ignore[attr-defined]
    assert len(lines) < 5000
    assert any("more lines (" in line and line.endswith(") dropped") for line in lines)


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


async def test_a_baseline_that_is_gone_is_said_and_the_next_save_served(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    it.session.set_baseline("best")
    await it.ended(2)
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): return 1\ndef toy(): ...\n")
    await it.until(lambda: any("no best to compare with yet" in event.text for event in it.of(Notice)))  # type: ignore[attr-defined]
    it.session.set_baseline("eager")
    await it.ended(3)
    assert summaries(it)[-1].geomean == pytest.approx(2.0)


async def test_a_timeout_dethrones_nobody_but_a_wrong_result_does(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await run_and_confirm(it.session, iteration=True)
    best = it.session.logbook.journal.summaries[-1]
    series = [best, replace(best, right=False, best=False, counts={"timeout": 1, "ok": 5})]
    assert best_of(series) is best
    assert best_of([*series, replace(best, right=False, best=False, counts={"wrong": 1})]) is None


async def test_a_best_that_is_timed_again_keeps_its_number_and_is_no_attempt(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    ended = []
    for text in ("TIME_US = 50.0", "TIME_US = 40.0", "TIME_US = 40.0", "TIME_US = 45.0", "TIME_US = 40.0"):
        write(folder, text)
        ended.append(await run_and_confirm(it.session, iteration=True))
    runs = [run for run in ended if isinstance(run, Summary)]
    assert [(run.repeats, run.stalled, run.streak) for run in runs] == [
        (None, False, 0), (None, False, 0), (2, False, 0), (None, False, 1), (2, False, 0),
    ]  # fmt: skip
    best = best_of(runs)
    assert best is not None
    assert (best.iteration, [run.best for run in runs]) == (2, [True, True, True, False, True])


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
    await reached(lambda: len(it.session.supervisor.pids) >= 2)
    pids = it.session.supervisor.pids
    await it.session.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_cases_that_are_only_checked_belong_to_the_whole(watched: Callable[..., Watched], folder: Path) -> None:
    """All that is timed, and right, is not best where a pattern left out what is wrong."""
    write(folder, 'TIME_US = 10.0\nDO = "wrong"\nON = "grid:rows=2"')
    it = watched(case="?")
    outcome = await it.session.run_once(iteration=True)
    assert isinstance(outcome, Summary)
    assert {event.result.id for event in it.of(CaseLanded)} == {"a", "b", "c"}  # type: ignore[attr-defined]
    assert outcome.right
    assert not outcome.complete
    assert not outcome.best
    whole = await watched(case="*").session.run_once(iteration=True)
    assert isinstance(whole, Summary)
    assert whole.complete
    assert not whole.right
