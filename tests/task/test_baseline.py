"""Baselines by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.task import Task
from kernbench.task.baseline import Baseline
from tests.log.logs import make_task


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    made = make_task(tmp_path / "here" / "task", 1)
    monkeypatch.chdir(tmp_path / "here")
    return taskfile.load(Path(made.folder))


@pytest.mark.parametrize(
    ("place", "is_short"),
    [
        ("here/old/fast.py", True),
        ("fast.py", False),  # not below the current folder
        ("here/reference.py", False),  # the task has one too, and is searched first
    ],
)
def test_a_file_is_named_from_the_current_folder_where_that_is_enough(
    task: Task, tmp_path: Path, place: str, is_short: bool
) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("# a baseline")
    found = Baseline.parse(str(file), task)
    assert found.option == (place.removeprefix("here/") if is_short else str(file))
    assert Baseline.parse(found.option, task) == found
    assert found.file == file
