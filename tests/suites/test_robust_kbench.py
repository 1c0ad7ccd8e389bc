"""robust-kbench problems: a function, a model that calls it with its weights, and settings in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.shared.taskfile import load
from kernbench.cli import cli
from kernbench.suites import imported_task, problems
from kernbench.suites.formats.foreign_problem import Form
from kernbench.task.lookup import ProjectError
from tests.harness.child import Child, results

WEIGHTS = """
import torch
import torch.nn as nn
import torch.nn.functional as F

def forward_fn(x, weight, bias, slope):
    return F.leaky_relu(F.linear(x, weight, bias), slope)

class Model(nn.Module):
    def __init__(self, features: int = 64, out: int = 32, slope: float = 0.1):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, features))
        self.bias = nn.Parameter(torch.randn(out))
        self.slope = slope

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.bias, self.slope)

def get_inputs(rows: int = 64, features: int = 64):
    return [torch.randn(rows, features)]

input_names = ["x"]
"""
RUNNING = """
import torch
import torch.nn as nn
import torch.nn.functional as F

def forward_fn(x, mean, var):
    return F.batch_norm(F.dropout(x, 0.5, training=True), mean, var, training=True)

class Model(nn.Module):
    def __init__(self, features: int = 64):
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("var", torch.ones(features))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.mean, self.var)

def get_inputs(rows: int = 64, features: int = 64):
    return [torch.randn(rows, features)]
"""
NOTHING: dict[str, list[dict[str, Any]]] = {
    f"{which}_{kind}_configs": [{}] for which in ("single", "multi") for kind in ("input", "init", "shared")
}
MANY = NOTHING | {
    "single_input_configs": [{"rows": 96}],
    "single_shared_configs": [{"features": 48}],
    "multi_input_configs": [{"rows": 96}, {"rows": 128}],
    "multi_init_configs": [{"out": 32}, {"out": 32}, {"out": 40, "unknown": 2}],
    "multi_shared_configs": [{"features": 48}],
}
ONE = NOTHING | {"single_input_configs": [{"rows": 96}]}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def written(folder: Path, text: str = WEIGHTS, config: object = ONE, **options: Any) -> Path:
    place = folder / "tasks" / "linear"
    place.mkdir(parents=True, exist_ok=True)
    (place / "func_forward.py").write_text(text)
    (place / "config_forward.json").write_text(json.dumps(config))
    found = problems.detect(place)
    assert found is not None
    return imported_task.write(found, folder / found.name, Form(device="cpu", **options))


def rows(child: Child, task: Path) -> dict[str, Any]:
    events = child.run(task, cases=[case.id for case in load(task).cases])
    assert [event for event in events if event["event"] == "failed"] == []
    return results(events)


@pytest.mark.parametrize("text", [WEIGHTS, RUNNING], ids=["weights", "random_with_state"])
def test_a_problem_is_right_as_its_own_solution(child: Child, tmp_path: Path, text: str) -> None:
    (found,) = rows(child, written(tmp_path, text)).values()
    assert (found["status"], found["detail"]) == ("ok", None)
    assert found["speedup"] is not None
    assert found["inputs"][0]["shape"] == [96, 64]


def test_zeros_are_wrong(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path)
    solution = task / "solution.py"
    solution.write_text(solution.read_text().replace("return F.leaky_relu", "return 0 * F.leaky_relu"))
    assert [row["status"] for row in rows(child, task).values()] == ["wrong"]


def test_the_products_of_the_settings_are_the_cases_each_once(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path, config=MANY)
    assert [case.id for case in load(task).cases] == [
        "rows_96",
        "rows_96_out_32",
        "rows_128_out_32",
        "rows_96_out_40_unknown_2",
        "rows_128_out_40_unknown_2",
    ]
    assert {row["status"] for row in rows(child, task).values()} == {"ok"}


def test_settings_and_defaults_are_scaled_alike(child: Child, tmp_path: Path) -> None:
    (found,) = rows(child, written(tmp_path, scale=4)).values()
    assert (found["status"], found["inputs"][0]["shape"]) == ("ok", [24, 16])


def test_the_problem_is_part_of_the_task(tmp_path: Path) -> None:
    task = written(tmp_path)
    before = load(task)
    assert "problem.py" in before.files
    path = tmp_path / "tasks" / "linear" / "func_forward.py"
    path.write_text(path.read_text().replace("leaky_relu", "elu"))
    assert load(task).hash != before.hash


def test_settings_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    for config in ({}, [], {**ONE, "multi_init_configs": 3}):
        with pytest.raises(ProjectError, match=r"linear/func_forward.py: needs config_forward.json next to it"):
            written(tmp_path, config=config)


def test_a_name_tells_where_a_problem_is_below_tasks(tmp_path: Path) -> None:
    for level in ("level_1", "level_2"):
        place = tmp_path / "tasks" / "kernelbench" / level / "task_3"
        place.mkdir(parents=True)
        (place / "func_forward.py").write_text(WEIGHTS)
    found = [problem.name for problem in problems.problems(tmp_path)]
    assert found == ["kernelbench_level_1_task_3", "kernelbench_level_2_task_3"]


def test_other_files_are_no_problems(tmp_path: Path) -> None:
    for text in ("def forward_fn(x): return x", "class Model: ("):
        (tmp_path / "func_forward.py").write_text(text)
        assert problems.detect(tmp_path) is None


@pytest.mark.parametrize("name", ["mine.py", "kernel.cu"])
def test_a_solution_is_taken_over_and_given_back_unchanged(tmp_path: Path, name: str) -> None:
    own, back = tmp_path / name, tmp_path / "back"
    own.write_bytes(b"# forward\r\n# \xc3\xa4")
    task = written(tmp_path, solution=own)
    done = CliRunner().invoke(cli, ["export", str(task), "--format", "robust-kbench", "-o", str(back)])
    assert done.exit_code == 0, done.output
    assert back.read_bytes() == own.read_bytes()
