"""`kernbench new` writes tasks that load, run and are never written over anything."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.task.lookup import ProjectError, shipped_tasks
from kernbench.task.scaffold import create


@pytest.mark.parametrize("template", ["triton", "host", "cuda"])
def test_a_new_task_loads_under_its_own_name(tmp_path: Path, template: str) -> None:
    folder = create("fused_gate", tmp_path, template=template)
    task = taskfile.load(folder)
    assert folder == tmp_path / "fused_gate"
    assert (task.name, task.entry) == ("fused_gate", "fused_gate")
    assert task.device == ("cpu" if template == "host" else "cuda")
    assert {case.kind for case in task.cases} == {"case", "smoke", "check"}
    assert all("my_kernel" not in path.read_text() for path in folder.iterdir())


def test_it_goes_into_kernels_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    assert create("a", tmp_path) == tmp_path / "kernels" / "a"


def test_a_copy_is_renamed_and_leaves_the_log_behind(tmp_path: Path) -> None:
    source = create("first", tmp_path)
    (source / "ITERATIONS.md").write_text("## 1")
    (source / ".kernbench").mkdir()
    (source / "exports" / "pull_request").mkdir(parents=True)
    (source / "my_state").mkdir()
    (source / "my_state" / "runs.jsonl").write_text("")
    (source / "extra.h").write_text("// mine")
    copy = create("second", tmp_path, source)
    assert sorted(path.name for path in copy.iterdir()) == ["extra.h", "reference.py", "solution.py", "task.toml"]
    task = taskfile.load(copy)
    assert (task.name, task.entry) == ("second", "first")


def test_only_the_name_of_the_task_itself_changes(tmp_path: Path) -> None:
    source = shipped_tasks()["softmax_host"]
    copy = create("mine", tmp_path, source)
    before = tomllib.loads((source / "task.toml").read_text())
    assert tomllib.loads((copy / "task.toml").read_text()) == {**before, "name": "mine"}


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes").write_text("mine")
    with pytest.raises(ProjectError, match="already exists"):
        create("a", tmp_path)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["notes"]


def test_only_files_and_folders_are_copied(tmp_path: Path) -> None:
    other = create("other", tmp_path)
    os.mkfifo(other / "fifo")
    for name, target in (("device", "/dev/null"), ("dangling", "gone"), ("note", "task.toml")):
        (other / name).symlink_to(target)
    copied = {path.name for path in create("mine", tmp_path, other).iterdir()}
    assert copied == {"note", "task.toml", "reference.py", "solution.py"}


def test_a_task_inside_the_one_it_copies_does_not_copy_itself(tmp_path: Path) -> None:
    other = create("other", tmp_path)
    copied = {path.name for path in create("mine", other, other).iterdir()}
    assert copied == {"task.toml", "reference.py", "solution.py"}


def test_a_copy_that_fails_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    other = create("other", tmp_path)
    (other / "memory").symlink_to("/proc/self/mem")
    with pytest.raises(ProjectError) as caught:
        create("mine", tmp_path, other)
    assert str(caught.value) == f"cannot write {tmp_path / 'mine'}: [Errno 5] Input/output error"
    assert os.listdir(tmp_path) == ["other"]


@pytest.mark.parametrize(
    ("name", "template"),
    [("truth", "host"), ("make_inputs", "host"), ("_lib", "host"), ("_CU", "cuda"), ("truth", "triton")],
)
def test_names_that_a_template_has_for_itself(tmp_path: Path, name: str, template: str) -> None:
    with pytest.raises(ProjectError, match="the template already uses it"):
        create(name, tmp_path, template=template)
    assert list(tmp_path.iterdir()) == []


def test_the_name_that_the_templates_have_is_free(tmp_path: Path) -> None:
    assert taskfile.load(create("my_kernel", tmp_path)).entry == "my_kernel"


@pytest.mark.parametrize("name", ["", "a-b", "1a", "../a", "a b", "class", "torch", "triton", "tl"])
def test_names_that_cannot_be_entries(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProjectError, match="is not a valid task name"):
        create(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
