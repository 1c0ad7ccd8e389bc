"""Corrected rows of a run that has ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import findings
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from kernbench.events import CaseLanded, RunStarted, Summary
from kernbench.log.runs.journal import Journal

WRONG = CaseResult("b", "wrong", detail="out differs", checked=1)
CORRECTED = replace(WRONG, detail="unsteady", findings=(findings.make("unsteady"),))


def journal(state: Path) -> Journal:
    """Two runs, each with a right and a wrong row."""
    made = Journal(state)
    for run in ("one", "two"):
        rows = [CaseResult("a", "ok"), WRONG]
        made.start(RunStarted(run, "aa", "save", ("a", "b"), "2026-01-01T00:00:00+00:00", "eager"), "t", Environment())
        for row in rows:
            made.case(CaseLanded(run, row))
        made.finish(Summary(run, "aa", "2026-01-01T00:00:00+00:00", False), rows)
    return made


def test_a_correction_is_about_one_run_and_every_reader_sees_it(tmp_path: Path) -> None:
    here = journal(tmp_path)
    there = Journal(tmp_path)
    here.correct("one", [CORRECTED])
    there.read_new()
    for reader in (here, there, Journal(tmp_path)):
        assert reader.cases_of("one") == {"a": CaseResult("a", "ok"), "b": CORRECTED}
        assert reader.landed_in("one")["b"] == reader.cases_of("two")["b"] == reader.last_cases["b"] == WRONG
        found = {run: [row["detail"] for row in rows] for run, rows in reader.runs()}
        assert found == {"one": [None, "unsteady"], "two": [None, "out differs"]}
    here.correct("two", [CORRECTED])
    there.read_new()
    assert here.last_cases["b"] == there.last_cases["b"] == Journal(tmp_path).last_cases["b"] == CORRECTED


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"run": "two"},
        {"run": "two", "rows": 3},
        {"run": "two", "rows": [{"id": "b", "detail": 3, "findings": []}]},
        {"run": "two", "rows": [{"id": "b", "detail": "x", "findings": [{"name": 1}]}]},
        {"run": ["two"], "rows": []},
        {"run": "two", "rows": [{"id": "c", "detail": "of a case that did not run", "findings": []}]},
    ],
)
def test_a_line_that_is_not_a_correction_changes_nothing(tmp_path: Path, line: dict[str, object]) -> None:
    before = journal(tmp_path)
    with before.path.open("a") as file:
        file.write(json.dumps({"event": "corrected", **line}, separators=(",", ":")) + "\n")
    after = Journal(tmp_path)
    before.read_new()
    for reader in (before, after):
        assert reader.cases_of("two") == {"a": CaseResult("a", "ok"), "b": WRONG}
        assert len(reader.summaries) == 2
