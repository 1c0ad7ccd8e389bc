"""Cases with weights: a second geomean next to the plain one, which still decides."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import stats
from harness.shared.results import CaseResult
from harness.shared.task import Task
from kernbench import export, report
from kernbench.events import Summary
from kernbench.log.entries.entry_text import EntryText
from kernbench.log.entries.old_entries import fields
from kernbench.log.runs.journal import Journal
from tests.log.logs import make_log, make_task, rows_of, summary_of

WEIGHTS = (12.5, 0.5)


def one(task: Task, number: int = 601) -> Summary:
    """A run whose first row is twice as fast as the baseline and whose second is as fast."""
    rows = [
        replace(row, speedup=value, low=value, high=value)
        for row, value in zip(found(task, number), (2.0, 1.0), strict=True)
    ]
    return summary_of(task, number, rows, [])


def found(task: Task, number: int) -> list[CaseResult]:
    return rows_of(task, number, 1.0, {}, 1)


def test_weights_are_exponents() -> None:
    assert stats.weighted_geomean([2.0, 1.0], [3.0, 1.0]) == pytest.approx(2**0.75)
    assert stats.weighted_geomean([2.0, 1.5], [1.0, 1.0]) == pytest.approx(math.sqrt(3))
    assert stats.weighted_geomean([], []) is None


def test_only_a_task_with_weights_has_a_weighted_geomean(tmp_path: Path) -> None:
    assert one(make_task(tmp_path / "plain", 2)).weighted is None
    assert one(make_task(tmp_path / "ones", 2, weights=(1.0, 1.0))).weighted is None
    run = one(make_task(tmp_path / "t", 2, weights=WEIGHTS))
    assert run.weighted == pytest.approx(2 ** (12.5 / 13))
    assert run.geomean == pytest.approx(math.sqrt(2))


def test_a_source_that_is_wrong_has_none(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 2, weights=WEIGHTS)
    assert summary_of(task, 6, found(task, 6), []).weighted is None


def test_it_stands_next_to_the_plain_one(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 2, weights=WEIGHTS)
    run = one(task)
    assert report.outcome(run).startswith("geomean 1.41x ±0.0%, weighted 1.95x · ")
    entry = EntryText(task, run, {row.id: row for row in found(task, 601)})(601)
    assert "- result: geomean 1.41x ±0.0%, weighted 1.95x, over 2 cases (device); " in entry
    assert fields(601, entry.split("601", 1)[1], "")["geomean"] == 1.41  # read without its trailer
    assert json.loads(report.finished_line(run))["weighted"] == run.weighted


def test_the_log_and_the_exports_keep_it(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 3, cases=2, weights=WEIGHTS)
    state = Path(task.folder) / ".kernbench"
    values = {run.run: run.weighted for run in Journal(state).summaries}
    assert len(values) == 3
    assert all(values.values())
    rows = csv.DictReader(io.StringIO(export.text(task, state, "csv")))
    assert {row["run"]: float(row["weighted_geomean_speedup"]) for row in rows} == values
    assert {run["run"]: run["weighted"] for run in json.loads(export.text(task, state, "json"))["runs"]} == values
    for kind in ("md", "html"):
        assert ", weighted " in export.text(task, state, kind)
    assert "weighted by case" in export.text(task, state, "html")


def test_a_log_from_before_weights_loads(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 2, cases=2)
    runs = Path(task.folder) / ".kernbench" / "runs.jsonl"
    text = runs.read_text()
    assert '"weighted":null,' in text
    runs.write_text(text.replace('"weighted":null,', ""))
    assert [run.weighted for run in Journal(runs.parent).summaries] == [None, None]
