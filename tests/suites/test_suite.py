"""`kernbench suite`: many problems in one go; whatever one of them does, the others have their result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.shared import findings
from harness.shared.results import CaseResult
from harness.shared.taskfile import load
from kernbench.cli import cli
from kernbench.suites import imported_task, problems, suite_report, suite_run
from kernbench.suites.formats.foreign_problem import Contents, Form, Problem
from kernbench.suites.suite_run import Outcome, SuiteFile
from kernbench.task.lookup import ProjectError
from tests.suites.test_kernelbench import PROBLEMS

NAMES = ("1_activation", "2_weights", "3_batch_norm")


def suite(folder: Path, *words: str, code: int | None = 0) -> tuple[list[dict[str, Any]], str]:
    command = [sys.executable, "-m", "kernbench", "suite", "level1", "--json", "--budget", "20"]
    done = subprocess.run(
        [*command, *words], cwd=folder, capture_output=True, text=True, timeout=240, env={**os.environ}
    )
    assert code is None or done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "level1").mkdir()
    for name in NAMES:
        (tmp_path / "level1" / f"{name}.py").write_text(PROBLEMS[name])
    return tmp_path


def test_every_problem_has_a_result_a_log_and_a_line_in_the_report(folder: Path) -> None:
    outcomes, said = suite(folder, "--quick")
    assert [(item["name"], item["status"]) for item in outcomes] == [(name, "ok") for name in NAMES]
    assert all(item["speedup"] for item in outcomes)
    assert "wrote suite/report.md" in said
    assert all((folder / "suite" / name / ".kernbench" / "runs.jsonl").is_file() for name in NAMES)
    assert "3 problems: 3 right" in (folder / "suite/report.md").read_text()
    page = (folder / "suite/report.html").read_text()
    assert all(f"<td>{name}</td>" in page for name in NAMES)
    again, said = suite(folder, code=2)
    assert again == []
    assert "go on with --resume" in said


def test_a_crash_costs_one_problem_and_resume_goes_on(folder: Path) -> None:
    solutions = folder / "solutions"
    solutions.mkdir()
    broken = PROBLEMS["2_weights"].replace("class Model(", "import os; os._exit(3)\nclass ModelNew(")
    (solutions / "2_weights.py").write_text(broken)
    (solutions / "3_batch_norm.py").write_text("def (")
    outcomes, _said = suite(folder, "--solutions", "solutions", "--only", "[23]*", code=1)
    assert [item["status"] for item in outcomes] == ["crashed", "build_error"]
    outcomes, _said = suite(folder, "--solutions", "solutions", "--resume", code=1)
    assert [(item["name"], item["status"]) for item in outcomes] == [("1_activation", "ok")]
    assert load(folder / "suite/1_activation").device == "cpu"


def test_a_damaged_line_costs_one_problem(tmp_path: Path) -> None:
    file = SuiteFile(tmp_path)
    file.keep(outcome("whole"))
    with file.path.open("ab") as lines:
        lines.write(b'{"name": "caf\xe9"}\n')
    file.keep(outcome("later"))
    assert list(file.known()) == ["whole", "later"]


@pytest.mark.long
def test_a_hang_costs_one_problem(folder: Path) -> None:
    solutions = folder / "solutions"
    solutions.mkdir()
    endless = PROBLEMS["2_weights"].replace("class Model(", "class ModelNew(").replace("super(Model", "super(ModelNew")
    (solutions / "2_weights.py").write_text(endless.replace("return self.fc(x)", "while True: pass"))
    outcomes, _said = suite(folder, "--solutions", "solutions", "--quick", "--deadline", "check=3", code=1)
    assert [item["status"] for item in outcomes] == ["ok", "timeout", "ok"]


def outcome(name: str, **values: Any) -> Outcome:
    return Outcome(name, **{"status": "ok", "seconds": 2.0, **values})


def test_problems_with_the_same_name_are_told_apart_and_a_refused_one_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for level in ("level1", "level2"):
        (tmp_path / level).mkdir()
        (tmp_path / level / "1_same.py").write_text(PROBLEMS["1_activation"])
    unfit = {"name": "no_workloads", "reference": "", "axes": {"n": {"type": "var"}}, "inputs": {}, "outputs": {}}
    (tmp_path / "level1" / "definition.json").write_text(json.dumps(unfit))
    done = CliRunner().invoke(cli, ["import", ".", "--to", "tasks", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "tasks").iterdir()) == ["level1_1_same", "level2_1_same"]
    assert "refused: " in done.output
    assert "made 2 tasks from 3 problems" in done.output
    again = CliRunner().invoke(cli, ["import", ".", "--to", "tasks", "--device", "cpu"])  # the tasks have links to them
    assert "made 2 tasks from 3 problems" in again.output
    done = CliRunner().invoke(cli, ["import", ".", "--only", "nothing*"])
    assert "no problems found in . that match nothing*" in str(done.exception)


def test_an_import_never_writes_through_a_link_or_outside_of_the_task(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.py"
    theirs.write_text("theirs")
    for links, texts in (
        ({"solution.py": theirs}, {"solution.py": "mine"}),
        ({"../x.py": theirs}, {"solution.py": "mine"}),
    ):
        contents = Contents("", "", texts, links)
        problem = Problem("kernelbench", theirs, "a", "a", lambda form, contents=contents: contents)  # type: ignore[misc]
        with pytest.raises(ProjectError, match="has no place in a task"):
            imported_task.write(problem, tmp_path / "task", Form())
    assert theirs.read_text() == "theirs"
    assert not (tmp_path / "task").exists()


def test_a_file_that_is_not_as_its_format_has_it_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "1_latin.py"
    path.write_bytes(PROBLEMS["1_activation"].encode() + b"# \xe9\n")
    found = problems.detect(path)
    assert found is not None
    with pytest.raises(ProjectError, match=r"1_latin.py: its files are not as .* \(UnicodeDecodeError"):
        imported_task.write(found, tmp_path / "task", Form())
    assert not (tmp_path / "task").exists()


def test_a_problem_that_does_not_fit_says_how_to_make_it_smaller() -> None:
    rows = [CaseResult("a", "skipped", detail="needs at least 26 GiB, 20 GiB free", reason="too_large")]
    found = suite_run.summed_up("a", rows, ())
    assert (found.status, found.is_right) == ("skipped", False)
    assert found.detail == "needs at least 26 GiB, 20 GiB free; `--scale 1/8` makes it smaller"


def test_a_finding_that_disqualifies_counts_wherever_it_is() -> None:
    rows = [CaseResult("big", "ok", baseline_us=9.0, speedup=2.0), CaseResult("small", "ok", baseline_us=1.0)]
    about_run = findings.make("clock_replaced", names="time.perf_counter")
    found = suite_run.summed_up("a", rows, (about_run,))
    assert (found.status, found.word, found.is_right) == ("disqualified", "disqualified", False)
    assert "clock replaced: the source replaced time.perf_counter" in found.detail
    about_row = findings.make("impossible_time", us="1", floor_us="2")
    found = suite_run.summed_up("a", [rows[0], replace(rows[1], findings=(about_row,))], ())
    assert (found.status, found.findings) == ("disqualified", ("impossible time",))


def test_the_report_sums_up() -> None:
    given = [
        outcome("a", speedup=4.0, verdict="faster", baseline_us=8.0, solution_us=2.0, roofline=0.5),
        outcome("b", speedup=1.0, verdict="same", device="NVIDIA H200"),
        outcome("c", status="wrong", detail="output 0 differs", device="NVIDIA B200"),
    ]
    assert suite_report.summary(given) == [
        "3 problems: 2 right, 1 wrong",
        "geomean 2.00x over 2; fast_0 67%, fast_1 33%, fast_2 33%",
        "SOL score 0.88 over 1",
        "on NVIDIA H200 (1), NVIDIA B200 (1)",
        "6 s, 2 s per problem",
    ]
    assert "| c | wrong | - | - | - | - | - | 2.0 | output 0 differs |" in suite_report.markdown("x", given)


def test_only_what_is_faster_beyond_the_noise_counts_as_fast() -> None:
    """Such as the reference against itself."""
    given = [outcome(name, speedup=1.02, verdict="unclear") for name in "abc"]
    given += [outcome("d", speedup=1.02, verdict="faster"), outcome("e", speedup=2.5, verdict="unclear")]
    assert "fast_0 100%, fast_1 20%, fast_2 0%" in suite_report.summary(given)[1]


def test_a_line_that_a_kill_cut_off_costs_only_itself(tmp_path: Path) -> None:
    file = suite_run.SuiteFile(tmp_path / "suite")
    file.keep(outcome("a"))
    with file.path.open("a") as torn:
        torn.write('{"name": "b", "sta')
    file.keep(outcome("c"))
    assert list(file.known()) == ["a", "c"]


def test_the_sol_score_is_one_at_the_speed_of_light_and_a_half_at_the_baselines() -> None:
    assert outcome("a", baseline_us=8.0, solution_us=4.0, roofline=1.0).sol_score == 1.0
    assert outcome("a", baseline_us=8.0, solution_us=8.0, roofline=0.5).sol_score == 0.5
    assert outcome("a", baseline_us=8.0, solution_us=8.0).sol_score is None
    assert outcome("a", baseline_us=8.0, solution_us=8.0, roofline=0.995).sol_score is None  # nothing is left to gain
    assert outcome("a", baseline_us=8.0, solution_us=80.0, roofline=0.0999).sol_score == 0.0
