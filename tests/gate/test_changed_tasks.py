"""Which tasks a gate runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernbench.gate import changed_tasks
from kernbench.machine.git_folder import Revision
from tests.repositories import commit, git


@pytest.fixture
def root(folder: Path, tmp_path: Path) -> Path:
    """A repository with two tasks, at different depths, committed to main."""
    root = tmp_path / "repository"
    shutil.copytree(folder, root / "kernels" / "one")
    shutil.copytree(folder, root / "a" / "b" / "two")
    git(root, "init", "-q", "-b", "main")
    commit(root)
    return root


def names(root: Path, revision: str = "main") -> list[str]:
    return [folder.name for folder in changed_tasks.changed(root, Revision.of(revision, root))]


def test_nothing_changed(root: Path) -> None:
    assert names(root) == []
    (root / "kernels" / "one" / "ITERATIONS.md").write_text("log\n")
    (root / "kernels" / "one" / "NOTES").write_text("words\n")
    (root / "README.md").write_text("words\n")
    assert names(root) == []


def test_a_change_of_any_file_of_the_source(root: Path) -> None:
    (root / "a" / "b" / "two" / "solution.py").write_text("def toy(): return 1\n")
    assert names(root) == names(root / "kernels") == ["two"]
    (root / "kernels" / "one" / "reference.py").write_text("def make_inputs(c): ...\ndef toy(): ...\n")
    assert names(root) == ["two", "one"]


def test_a_file_that_is_new_or_gone(root: Path) -> None:
    part = root / "kernels" / "one" / "part.h"
    part.write_text("// part\n")
    assert names(root) == ["one"]
    commit(root)
    assert names(root) == []
    part.unlink()
    assert names(root) == ["one"]


def test_an_ignored_file_does_not_count(root: Path) -> None:
    task = root / "kernels" / "one"
    (task / "task.toml").write_text('ignore = ["*.bin"]\n' + (task / "task.toml").read_text())
    (task / "data.bin").write_text("1")
    commit(root)
    (task / "data.bin").write_text("2")
    assert names(root) == []


def test_a_linked_file_elsewhere_in_the_repository(root: Path) -> None:
    (root / "common.h").write_text("// old\n")
    (root / "kernels" / "one" / "common.h").symlink_to("../../common.h")
    commit(root)
    assert names(root) == []
    (root / "common.h").write_text("// new\n")
    assert names(root) == ["one"]


def test_a_new_task_and_a_broken_one(root: Path) -> None:
    shutil.copytree(root / "kernels" / "one", root / "kernels" / "three")
    (root / "a" / "b" / "two" / "task.toml").write_text("entry = 3\n")
    assert names(root) == ["two", "three"]


def test_what_changed_only_on_the_other_branch_is_not_run(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "work")
    (root / "kernels" / "one" / "solution.py").write_text("def toy(): return 1\n")
    commit(root)
    git(root, "checkout", "-q", "main")
    (root / "a" / "b" / "two" / "solution.py").write_text("def toy(): return 2\n")
    commit(root)
    git(root, "checkout", "-q", "work")
    assert names(root) == ["one"]
