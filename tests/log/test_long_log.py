"""The runs of a long log, as the journal that wrote them knows them and as one that opens the file reads them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared.results import Ratio
from harness.shared.run_request import Environment
from kernbench.events import RunStarted, Summary
from kernbench.log import stored_sources
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs import comparison
from kernbench.log.runs import series as series_rules
from kernbench.log.runs.journal import Journal
from tests.log.logs import ENVIRONMENT, make_log, source_hash, stretch

GPUS = ("NVIDIA H100", "NVIDIA H200")


def past(count: int, seed: int = 1) -> list[Summary]:
    """Runs of several series: entries and plain runs, right and wrong ones, sources that come again."""
    choose = random.Random(seed)
    runs: list[Summary] = []
    for number in range(1, count + 1):
        right = choose.random() > 0.2
        runs.append(
            Summary(
                run=f"20261114T{number:06}-abc",
                source=source_hash(choose.randrange(count // 20 + 2)),
                at=f"2026-11-14T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}+00:00",
                right=right,
                geomean=choose.uniform(0.5, 3.0) if right else None,
                best=right and choose.random() < 0.02,
                vs_best=Ratio(1.1, 1.0, 1.2, "faster") if choose.random() < 0.5 else None,
                best_geomean=1.5 if choose.random() < 0.7 else None,
                repeats=3 if choose.random() < 0.3 else None,
                stalled=choose.random() < 0.3,
                counts={"ok": 2} if right else {choose.choice(["wrong", "timeout", "crashed", "runtime_error"]): 1},
                iteration=number if choose.random() < 0.7 else None,
                complete=choose.random() > 0.1,
                hypothesis=f"try {number}",
                baseline=choose.choice(["eager", "compile"]),
                task_hash="t",
                seconds=choose.random(),
                environment=replace(ENVIRONMENT, device_name=choose.choice(GPUS), interpreted=choose.random() < 0.05),
            )
        )
    return runs


def write(journal: Journal, runs: list[Summary]) -> None:
    for run in runs:
        started = RunStarted(run.run, run.source, "save", (), run.at, run.baseline)
        journal.start(started, "toy", run.environment)
        journal.finish(run, [])


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Summary], Journal, Journal]:
    """What was written, the journal that wrote it, and one that was opened afterwards."""
    runs = past(3000)
    journal = Journal(tmp_path_factory.mktemp("long") / ".kernbench")
    write(journal, runs)
    for index in range(0, len(runs), 37):
        if runs[index].iteration is not None:
            runs[index] = replace(runs[index], hypothesis=f"said later: {index}", hypothesis_by="Kim", next="go on")
            journal.words(runs[index])
    return runs, journal, Journal(journal.state)


def test_a_long_log_has_the_records_that_were_written(long_log: tuple[list[Summary], Journal, Journal]) -> None:
    runs, *journals = long_log
    for journal in journals:
        assert list(journal.summaries) == runs
        for index in (0, 37, 1499, -1, -2, -300):
            assert journal.summaries[index] == runs[index]
        assert journal.summaries[-40:] == runs[-40:]
        assert journal.highest() == max(run.iteration or 0 for run in runs)
        assert {run.new_best for run in journal.summaries if run.best} == {True, False}


def test_runs_share_the_words_that_they_have_in_common(tmp_path: Path) -> None:
    """A log of 66,000 runs fits in 250 MB."""
    task = make_log(tmp_path / "t", 2, cases=2)
    stretch(task, 5)
    first, *others = Journal(tmp_path / "t" / ".kernbench").summaries
    assert [run.iteration for run in others] == [2, 3, 4, 5]
    assert not hasattr(first, "__dict__")
    for run in others:
        assert run.run != first.run
        for name in ("baseline", "baseline_hash", "task_hash", "command", "version", "hypothesis_by", "environment"):
            assert getattr(run, name) is getattr(first, name)


def test_a_log_that_is_taken_away_stays_known(tmp_path: Path) -> None:
    journal, runs = Journal(tmp_path), past(20)
    write(journal, runs)
    journal.path.unlink()
    assert list(journal.summaries) == runs
    assert not journal.read_new()
    write(journal, [replace(runs[0], run="later")])
    assert [item.run for item in journal.summaries] == [*(run.run for run in runs), "later"]
    assert [item.run for item in Journal(tmp_path).summaries] == ["later"]


@pytest.mark.parametrize("status", ["wrong", "runtime_error", "crashed", "timeout"])
def test_a_best_that_fails_later_is_best_no_more_unless_it_was_late(status: str) -> None:
    first, second = (replace(run, best=True, counts={"ok": 2}) for run in past(2))
    second = replace(second, source=source_hash(77))
    failed = replace(second, best=False, right=False, counts={status: 1})
    assert series_rules.best_of([first, second, failed]) == (second if status == "timeout" else first)


def test_best_and_stall_of_a_long_log(long_log: tuple[list[Summary], Journal, Journal]) -> None:
    runs, *journals = long_log
    wanted = {series_rules.Series.of(run) for run in runs}
    assert len(wanted) == 4
    for journal in journals:
        for series in wanted:
            whole = [run for run in runs if series_rules.Series.of(run) == series]
            assert journal.series(series) == whole
            assert journal.best(series) == series_rules.best_of(whole) is not None
            for end in (1, 40, len(whole)):
                counted = [run for run in whole[:end] if run.counted]
                since = [run.new_best for run in reversed(counted)]
                assert comparison.streak(whole[:end], False, True) == [*since, True].index(True) + 1
                assert comparison.follows_stall(whole[:end], True) == any(run.stalled for run in counted[-1:])


def test_the_trajectory_of_a_long_log(long_log: tuple[list[Summary], Journal, Journal]) -> None:
    runs, *journals = long_log
    iterations = [run for run in runs if run.iteration is not None]
    for journal in journals:
        listed = PulledEntries(journal.state / "no log").iterations(journal)
        assert list(listed) == iterations
        assert listed[-200:] == iterations[-200:]
        assert listed.numbers() == [run.iteration for run in iterations]
        assert listed.with_number(iterations[7].iteration or 0) == [iterations[7]]
        assert listed.with_number(len(runs) + 1) == []
        for run in iterations[:: len(iterations) // 9]:
            first = next(item.iteration for item in iterations if item.source == run.source)
            assert journal.iteration_of(run.source) == first
            newest = [item for item in iterations if item.source == run.source][-1]  # an entry before a plain run
            assert stored_sources._with_hash(journal, listed, run.source[:12]) == {run.source: newest}


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    good = Summary("r1", "odd hash", "2026-11-14T21:03:00+00:00", True, iteration=1, environment=Environment())
    journal.finish(good, [])
    for change in ({"iteration": 2**70}, {"iteration": "two"}, {"geomean": []}, {"counts": 3}, {"environment": 4}):
        with journal.path.open("a") as file:
            file.write(json.dumps({"event": "finished", **_plain(good), **change}) + "\n")
    journal.finish(replace(good, run="r2", source="ab" * 32, iteration=2), [])
    with journal.path.open("a") as file:  # of a later version
        about = {"device": "cuda:0", "gpus": ["a", "b"]}
        line = {"event": "finished", **_plain(good), "run": "r3", "iteration": 3, "environment": about}
        file.write(json.dumps(line) + "\n")
    again = Journal(tmp_path)
    assert [(item.run, item.source) for item in again.summaries] == [
        ("r1", "odd hash"),
        ("r2", "ab" * 32),
        ("r3", "odd hash"),
    ]
    assert [item.iteration for item in again.numbered()] == [1, 2, 3]


def _plain(run: Summary) -> dict[str, object]:
    return {"run": "broken", "source": run.source, "at": run.at, "right": True}
