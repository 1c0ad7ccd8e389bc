"""KernelBench problems: recognized without running them, written as a task, right as their own solution."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.shared.taskfile import load
from kernbench.cli import cli
from kernbench.suites import imported_task, problems
from kernbench.suites.formats import kernelbench
from kernbench.suites.formats.foreign_problem import Form
from kernbench.task.lookup import ProjectError
from tests.harness.child import Child, results

MODEL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    \"\"\"A Model that does something.\"\"\"
    def __init__(self, HEAD):
        super(Model, self).__init__()
        LAYERS

    def forward(self, PARAMETERS):
        return BODY

batch_size = 64
dim = 96

def get_inputs():
    return INPUTS

def get_init_inputs():
    return INIT
"""


def problem(parameters: str, body: str, inputs: str, head: str = "", layers: str = "pass", init: str = "[]") -> str:
    text = MODEL.replace("PARAMETERS", parameters).replace("BODY", body).replace("INPUTS", inputs)
    text = text.replace("self, HEAD", f"self, {head}" if head else "self")
    return text.replace("LAYERS", layers).replace("INIT", init)


X = "[torch.rand(batch_size, dim)]"
PROBLEMS = {
    "1_activation": problem("x", "torch.relu(x)", X),
    "2_weights": problem("x", "self.fc(x)", X, "dim", "self.fc = nn.Linear(dim, 32)", "[dim]"),
    "3_batch_norm": problem("x", "self.bn(x)", X, "dim", "self.bn = nn.BatchNorm1d(dim)", "[dim]"),
    "4_number": problem("x, s", "x * s", "[torch.rand(batch_size, dim), 3.14]"),
    "5_integers": problem("x", "torch.argmax(x, dim=1)", X),
    "6_half": problem("q, k", "q @ k.T", "[torch.rand(64, 32, dtype=torch.float16) for _ in range(2)]"),
    "7_dropout": problem("x", "self.drop(x)", X, "", "self.drop = nn.Dropout(0.2)"),
    "8_two_results": problem("x", "(x.amax(1), x + 1)", X),
    "9_loss": problem(
        "x, target",
        "nn.functional.cross_entropy(x, target)",
        "[torch.rand(batch_size, dim), torch.randint(0, dim, (batch_size,))]",
    ),
    "10_state": problem("x", "torch.tanh(x @ self.w)", X, "n", "self.w = nn.Parameter(torch.randn(n, n))", "[dim]"),
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def written(folder: Path, name: str, text: str | None = None, **options: Any) -> Path:
    path = folder / "level1" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROBLEMS[name] if text is None else text)
    found = problems.detect(path)
    assert found is not None
    return imported_task.write(found, folder / name, Form(device="cpu", **options))


def row(child: Child, task: Path) -> dict[str, Any]:
    events = child.run(task, cases=[case.id for case in load(task).cases])
    assert [event for event in events if event["event"] == "failed"] == []
    return next(iter(results(events).values()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_right_as_its_own_solution(child: Child, tmp_path: Path, name: str) -> None:
    found = row(child, written(tmp_path, name))
    assert (found["status"], found["detail"]) == ("ok", None)
    assert found["speedup"] is not None


@pytest.mark.parametrize("name", ["2_weights", "7_dropout", "10_state"])
def test_zeros_are_wrong(child: Child, tmp_path: Path, name: str) -> None:
    task = written(tmp_path, name)
    solution = task / "solution.py"
    solution.write_text(
        solution.read_text().replace("return self.", "return 0 * self.").replace("tanh(x", "tanh(0 * x")
    )
    assert row(child, task)["status"] == "wrong"


def test_a_scaled_problem_is_smaller(child: Child, tmp_path: Path) -> None:
    found = row(child, written(tmp_path, "2_weights", scale=4))
    assert found["inputs"][0]["shape"] == [16, 24]


def test_the_class_is_renamed_wherever_it_is_named_and_nothing_else() -> None:
    text = PROBLEMS["1_activation"]
    made = kernelbench.first_solution(text)
    assert "class ModelNew(nn.Module)" in made
    assert "super(ModelNew, self)" in made
    assert "A Model that does something." in made
    assert made.replace("ModelNew", "Model") == text


def test_the_problem_is_part_of_the_task_and_a_change_of_it_starts_a_new_series(tmp_path: Path) -> None:
    task = written(tmp_path, "1_activation")
    before = load(task)
    assert "problem.py" in before.files
    path = tmp_path / "level1" / "1_activation.py"
    path.write_text(path.read_text().replace("torch.relu", "torch.tanh"))
    assert load(task).hash != before.hash


def test_a_copy_does_not_follow(tmp_path: Path) -> None:
    task = written(tmp_path, "1_activation", copy=True)
    assert not (task / "problem.py").is_symlink()
    assert written(tmp_path, "1_activation", copy=True) == task
    with pytest.raises(ProjectError, match="is not this problem's"):
        written(tmp_path, "1_activation", PROBLEMS["2_weights"])


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    task = written(tmp_path, "1_activation")
    (task / "solution.py").write_text("mine")
    assert written(tmp_path, "1_activation") == task
    assert (task / "solution.py").read_text() == "mine"


def test_a_solution_that_was_imported_is_exported_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own.py"
    own.write_bytes(kernelbench.first_solution(PROBLEMS["1_activation"]).replace("\n", "\r\n").encode() + b"# \xc3\xa9")
    task = written(tmp_path, "1_activation", solution=own)
    run = CliRunner().invoke
    done = run(cli, ["export", str(task), "--format", "kernelbench", "-o", "out.py"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out.py").read_bytes() == own.read_bytes() == (task / "solution.py").read_bytes()
    done = run(cli, ["export", str(task), "--format", "submission", "-o", "other.py"])
    assert "cannot be exported as submission; export it with `--format kernelbench`" in str(done.exception)
    assert not (tmp_path / "other.py").exists()


def test_other_files_are_no_problems(tmp_path: Path) -> None:
    for name, text in {"a.py": "def f(): pass", "b.py": "class Model: (", "c.txt": PROBLEMS["1_activation"]}.items():
        (tmp_path / name).write_text(text)
    assert list(problems.problems(tmp_path)) == []


def test_import_lists_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    level = tmp_path / "level1"
    level.mkdir()
    for name, text in PROBLEMS.items():
        (level / f"{name}.py").write_text(text)
    run = CliRunner().invoke
    listed = run(cli, ["import", "level1", "--list"])
    assert [line.split()[0] for line in listed.output.splitlines()] == list(PROBLEMS)
    assert "7_dropout  kernelbench, draws random numbers" in listed.output
    assert run(cli, ["import", "level1", "--only", "1*", "--to", "tasks", "--scale", "1/8"]).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "tasks").iterdir()) == ["10_state", "1_activation"]
    assert load(tmp_path / "tasks/10_state").cases[0].axes == {"scale": 8}
    assert "not a fraction such as 1/16" in run(cli, ["import", "level1", "--scale", "2"]).output
    assert run(cli, ["import", "level1", "--solution", "level1/1_activation.py"]).exit_code == 2


def test_a_problems_file_just_opens(tmp_path: Path) -> None:
    path = tmp_path / "level1" / "1_activation.py"
    path.parent.mkdir()
    path.write_text(PROBLEMS["1_activation"])
    command = [sys.executable, "-m", "kernbench", "run", "level1/1_activation.py", "--no-confirm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ})
    assert "made 1_activation, a task of level1/1_activation.py" in done.stderr
    assert done.returncode == 0, done.stderr
    assert "as_given" in done.stdout


def test_a_constructor_that_fails_is_the_solutions_mistake(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path, "2_weights")
    solution = task / "solution.py"
    solution.write_text(solution.read_text().replace("self.fc =", "raise ValueError('no weights')\n        self.fc ="))
    found = row(child, task)
    assert (found["status"], found["detail"]) == ("runtime_error", "ValueError: no weights")
    assert found["where"]["file"] == "solution.py"
