"""Which cases a word or a pattern names."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.shared.task import Task
from kernbench.commands.profile import trace_file
from kernbench.task import case_choice
from tests.log.logs import make_task

ODD = "m[bf16]/4x[8]"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path / "t", 2, odd=ODD)


def named(task: Task, glob: str | None) -> list[str]:
    return [case.id for case in case_choice.matching(task, glob)]


def test_a_case_whose_name_looks_like_a_pattern_is_named_by_it(task: Task) -> None:
    assert named(task, ODD) == [ODD]
    assert not case_choice.leaves_nothing_out(task, ODD)


def test_a_pattern_is_held_against_ids_and_labels(task: Task) -> None:
    assert named(task, "rms_*") == named(task, "qwen *") == [case.id for case in task.cases if case.id != ODD]
    assert named(task, None) == named(task, "*") == [case.id for case in task.cases]
    assert named(task, "nothing*") == []


def test_a_trace_lies_in_the_state_folder_whatever_its_case_is_called(tmp_path: Path) -> None:
    assert trace_file(tmp_path, ODD) == tmp_path / "trace-m[bf16]_4x[8].json"
