"""A source that a model does not keep stays here, unless it is sent off anyway, which is written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.shared.model_step import Patch
from harness.shared.task import Task
from kernbench.cli import cli
from kernbench.export.formats import ExportError
from kernbench.log import stored_sources
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import RunsFile
from kernbench.transfer.model_row import ModelRow
from kernbench.transfer.model_run import line_of
from kernbench.upstream import model_gate
from tests.log.logs import make_log, source_hash

FASTER = ModelRow(
    "r", "flux", "full", "2026-11-17T10:00:00+00:00", "faster", True, "", "ours", "eager", 1.13, 1.12, 1.14
)
UNSEEN = replace(FASTER, word="too small to see", expected=1.003, resolvable=0.01, speedup=1.0, low=0.99, high=1.01)
REFUSED = {
    "slower": replace(FASTER, word="slower", kept=False, speedup=0.9, low=0.89, high=0.91),
    "not wired: the entry of rms_norm never ran": ModelRow(
        "r", "flux", "full", FASTER.at, "not wired", False, "the entry of rms_norm never ran"
    ),
    'forbidden: "Using diffusers backend" (line 3 of its log)': ModelRow(
        "r", "flux", "full", FASTER.at, "forbidden", False, '"Using diffusers backend" (line 3 of its log)'
    ),
    "not kept: relative L2 0.03 is over the limit of 0.02": replace(
        FASTER, kept=False, why="relative L2 0.03 is over the limit of 0.02"
    ),
}


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.chdir(tmp_path)
    return make_log(tmp_path / "rms_norm", 5, cases=2)


@pytest.fixture
def journal(task: Task) -> Journal:
    return Journal(Path(task.folder) / ".kernbench")


@pytest.fixture
def best(task: Task, journal: Journal) -> str:
    return stored_sources.summary_of(task, journal, "best").source


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "norm.py"
    path.write_text("old = 1\n")
    return path


def say(state: Path, row: ModelRow, *sources: str, **changed: Any) -> None:
    """Records the row as `kernbench transfer` does."""
    patches = [Patch("rms_norm", "rms_norm", "", "", source=source, what="best") for source in sources]
    others = [Patch("other", "other", "", "", source="0" * 64, what="best")] if changed.pop("together", False) else []
    RunsFile(state / "runs.jsonl").append(line_of(replace(row, sources=tuple(patches + others), **changed)))


def kernbench(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def port(task: Task, target: Path, *words: str) -> Result:
    return kernbench("port", task.folder, "--to", str(target), "--force", *words)


def pull_request(task: Task, *words: str) -> Result:
    return kernbench("export", task.folder, "--format", "pr", "-o", "-", *words)


def overruled(journal: Journal) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    return [line for line in lines if line["event"] == "overruled"]


@pytest.mark.parametrize("said", REFUSED)
def test_a_source_that_a_model_does_not_keep_is_not_ported(
    task: Task, journal: Journal, best: str, target: Path, said: str
) -> None:
    say(journal.state, REFUSED[said], best)
    result = port(task, target)
    assert result.exit_code == 1
    assert "kernbench: not written: flux: " in result.stderr
    assert said in result.stderr
    assert "; choose another source, or use --anyway" in result.stderr
    assert target.read_text() == "old = 1\n"
    assert overruled(journal) == []


def test_anyway_writes_the_file_and_a_line(task: Task, journal: Journal, best: str, target: Path) -> None:
    say(journal.state, REFUSED["slower"], best)
    result = port(task, target, "--anyway")
    assert result.exit_code == 0
    assert "kernbench: written anyway: flux: ours over eager" in result.stderr
    assert "def rms_norm" in target.read_text()
    (line,) = overruled(journal)
    assert (line["doing"], line["source"], line["target"]) == ("port", best, "norm.py")
    assert "slower" in line["said"][0]
    assert [run.run for run in Journal(journal.state).summaries] == [run.run for run in journal.summaries]


def test_a_dry_run_says_that_it_would_not_be_written(task: Task, journal: Journal, best: str, target: Path) -> None:
    say(journal.state, REFUSED["slower"], best)
    result = port(task, target, "--dry-run")
    assert result.exit_code == 0
    assert "kernbench: it would not be written: flux: " in result.stderr


@pytest.mark.parametrize("row", [FASTER, replace(FASTER, word="same"), UNSEEN])
def test_a_step_that_stays_the_same_passes_with_its_line(
    task: Task, journal: Journal, best: str, target: Path, row: ModelRow
) -> None:
    say(journal.state, row, best)
    assert f", {row.said}" in port(task, target).stderr
    assert "def rms_norm" in target.read_text()
    text = pull_request(task).stdout
    assert "## In a model\n\n- flux: ours over eager" in text
    assert f", {row.said}" in text


def test_a_pull_request_of_a_refused_source_needs_anyway(task: Task, journal: Journal, best: str) -> None:
    say(journal.state, REFUSED["slower"], best)
    refused = pull_request(task)
    assert isinstance(refused.exception, ExportError)
    assert "stays here: flux: ours over eager" in str(refused.exception)
    assert refused.stdout == ""
    assert overruled(journal) == []
    assert "- shown with `--anyway`: flux: ours over eager" in pull_request(task, "--anyway").stdout
    (line,) = overruled(journal)
    assert (line["doing"], line["source"]) == ("pr", best)


def test_a_pull_request_that_cannot_be_written_overrules_nothing(
    task: Task, journal: Journal, best: str, tmp_path: Path
) -> None:
    say(journal.state, REFUSED["slower"], best)
    (tmp_path / "pr").mkdir()
    (tmp_path / "pr" / "numbers.csv").write_text("mine\n")
    result = kernbench("export", task.folder, "--format", "pr", "-o", str(tmp_path / "pr"), "--anyway")
    assert "already exists" in str(result.exception)
    assert overruled(journal) == []


def test_without_a_row_that_is_said(task: Task, target: Path) -> None:
    assert "kernbench: no model has run this source" in port(task, target).stderr
    assert "- no model has run this source" in pull_request(task).stdout


def test_a_row_about_another_source_does_not_count(task: Task, journal: Journal, best: str, target: Path) -> None:
    other = source_hash(1)
    assert other != best
    say(journal.state, REFUSED["slower"], other)
    result = port(task, target)
    assert result.exit_code == 0
    hint = "`kernbench transfer flux --task rms_norm` runs the best"
    assert f"flux has not run this source: its row is about another one, #1; {hint}" in result.stderr


def test_the_newest_row_of_a_model_counts(task: Task, journal: Journal, best: str) -> None:
    say(journal.state, FASTER, best, at="2026-11-17T12:00:00+00:00")
    say(journal.state, REFUSED["slower"], best, at="2026-11-17T11:00:00+00:00")
    assert model_gate.gate(task, journal, best).refused == ()
    say(journal.state, REFUSED["slower"], best, at="2026-11-17T13:00:00+00:00")
    assert [row.word for row in model_gate.gate(task, journal, best).refused] == ["slower"]
    say(journal.state, FASTER, best, model="wan")
    assert [row.model for row in model_gate.gate(task, journal, best).rows] == ["flux", "wan"]
    say(journal.state, FASTER, best, config="other", at="2026-11-17T14:00:00+00:00")
    assert [row.word for row in model_gate.gate(task, journal, best).refused] == ["slower"]  # of the first config


def test_a_stand_in_says_nothing_about_a_source(task: Task, journal: Journal, best: str) -> None:
    stand_in = Patch("rms_norm", "rms_norm", "", "", source=best, what="reference")
    RunsFile(journal.path).append(line_of(replace(FASTER, word="checked", sources=(stand_in,))))
    assert model_gate.gate(task, journal, best).rows == ()


MODEL = """
title = "a step"
program = "program.py"
dtype = "bfloat16"
[configs.full]
[[site]]
call = "layers:norm"
task = "rms_norm"
adapter = "adapters:norm"
"""


def test_a_row_about_all_tasks_is_found_in_the_models_folder(
    task: Task, journal: Journal, best: str, tmp_path: Path
) -> None:
    model = tmp_path / "models" / "flux"
    model.mkdir(parents=True)
    (model / "model.toml").write_text(MODEL)
    assert model_gate.gate(task, journal, best).missing == (
        "no model has run this source; `kernbench transfer flux --task rms_norm` runs the best",
    )
    assert not (model / ".kernbench").exists()
    say(model / ".kernbench", REFUSED["slower"], best, together=True)
    assert [row.word for row in model_gate.gate(task, journal, best).refused] == ["slower"]
    say(journal.state, FASTER, best)  # of the same second: alone, it says more about this task
    assert model_gate.gate(task, journal, best).refused == ()
