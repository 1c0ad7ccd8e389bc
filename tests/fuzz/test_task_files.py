"""Whatever is in task.toml, cases.json and reference.py: a task, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from harness.shared import taskfile
from harness.shared.lines import decode, to_dict
from harness.shared.task import Task
from kernbench.log import overview
from kernbench.task import case_choice, snapshot
from kernbench.task.baseline import Baseline
from tests.fuzz.user_files import fuzzed, nearly, only_sentences, spoiled, toml, write
from tests.harness.shared.test_taskfile import GOOD, REFERENCE

CASES = [{"id": "a", "axes": {"rows": 4, "dtype": "float32", "tile": [1, 2]}, "kind": "case", "label": "A"}]
CASES += [{"id": "b", "axes": {"out_dtype": ["float16"]}, "models": ["m"], "known": {"us": 1.5}, "headline": True}]
TASK = {
    "name": "toy",
    "entry": "toy",
    "summary": "of a toy",
    "baseline": "reference.py",
    "device": "cpu",
    "threads": 2,
    "mutates": ["x"],
    "rowwise": ["x"],
    "layout": "any",
    "libraries": True,
    "ignore": ["*.pt"],
    "tolerance": {"float32": {"atol": 1e-3, "rtol": 0}},
    "case": CASES,
    "smoke": [{"id": "s", "axes": {"rows": 1}}],
    "check": [{"id": "c"}],
    "grid": {"rows": [1, 2], "dtype": ["float32", "float16"], "mode": "x"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def check(folder: Path, **files: str) -> Task | None:
    """A task that can be sent to the worker and asked for its cases, or a sentence; the same from `status`."""
    texts = {"task.toml": GOOD, "reference.py": REFERENCE, "solution.py": "def toy(x): ...\n", "cases.json": "[]"}
    for name, text in {**texts, **{key.replace("_", "."): text for key, text in files.items()}}.items():
        write(folder / name, text)
    with only_sentences() as problems:
        task = taskfile.load(folder)
        sent = json.dumps(to_dict(task), ensure_ascii=False, allow_nan=False).encode()
        assert decode(Task, json.loads(sent)).hash == task.hash
        case_choice.ordered(case_choice.choose(task.cases, 1, False, False)[0], {}, None)
        assert all(case.size > 0 and len(f"{case.id} {case.label}".splitlines()) == 1 for case in task.cases)
        Baseline.parse(task.baseline, task)
        return task
    row = overview.of(folder)
    assert row.problem == str(problems[0])
    return None


@fuzzed(200)
@given(data=nearly(TASK))
def test_data_in_task_toml(folder: Path, data: Any) -> None:
    check(folder, task_toml=toml(data if isinstance(data, dict) else {"name": data}))


@fuzzed(50)
@given(text=spoiled(GOOD))
def test_text_in_task_toml(folder: Path, text: str) -> None:
    check(folder, task_toml=text)


@fuzzed(80)
@given(data=nearly(CASES))
def test_data_in_cases_json(folder: Path, data: Any) -> None:
    check(folder, cases_json=json.dumps(data))


@fuzzed(30)
@given(text=spoiled('[{"id": "a", "axes": {"rows": 1, "dtype": "float32"}, "known": {"us": 1.5}}]'))
def test_text_in_cases_json(folder: Path, text: str) -> None:
    check(folder, cases_json=text)


@fuzzed(30)
@given(text=spoiled(REFERENCE))
def test_text_in_reference_py(folder: Path, text: str) -> None:
    check(folder, reference_py=text)


@fuzzed(30)
@given(text=spoiled("import helper\ndef toy(x):\n    return f'{x!r}' + \"\\d\"\n"))
def test_text_in_solution_py(folder: Path, text: str) -> None:
    """It is the worker that runs it; here it is only hashed."""
    task = check(folder, solution_py=text)
    assert task is not None
    source = snapshot.take(folder, folder / ".kernbench", task)
    assert snapshot.code_of(source.folder, task) == source.code


def test_right_files_are_a_task(folder: Path) -> None:
    """Else the properties above would only see sentences."""
    for text in (GOOD, toml(TASK)):
        task = check(folder, task_toml=text)
        assert task is not None
        assert len(task.cases) > 5
