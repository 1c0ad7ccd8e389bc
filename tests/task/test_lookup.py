"""Tasks are found by path or name from where the user stands, and a task's runs get a folder git does not see."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kernbench.engine.workbench_lock import WorkbenchLock
from kernbench.log.logbook import Logbook
from kernbench.log.runs.runs_file import RunsFile
from kernbench.machine import clipboard
from kernbench.task import lookup
from kernbench.task.lookup import ProjectError, find_task, list_tasks, shipped_tasks, state_dir


def make_task(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text("")
    (folder / "solution.py").write_text("")
    return folder.resolve()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def nothing_shipped(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "PACKAGE", tmp_path_factory.mktemp("empty") / "src" / "kernbench")


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that carries one task as data, as a wheel does."""
    package = tmp_path_factory.mktemp("site") / "kernbench"
    monkeypatch.setattr(lookup, "PACKAGE", package)
    return make_task(package / "tasks" / "shipped")


@pytest.mark.parametrize("name", ["kernels/a", "./kernels/a/", "kernels/a/solution.py", "a"])
def test_a_path_or_a_name(repository: Path, name: str) -> None:
    task = make_task(repository / "kernels" / "a")
    assert find_task(name, repository) == task


def test_a_name_is_looked_for_upwards_to_the_repository_root(repository: Path) -> None:
    task = make_task(repository / "kernels" / "a")
    (repository / "deep" / "down").mkdir(parents=True)
    assert find_task("a", repository / "deep" / "down") == task


def test_not_beyond_the_repository_root(tmp_path: Path) -> None:
    make_task(tmp_path / "kernels" / "a")
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    with pytest.raises(ProjectError):
        find_task("a", tmp_path / "checkout")


def test_the_nearest_of_two_with_one_name(repository: Path) -> None:
    make_task(repository / "kernels" / "a")
    near = make_task(repository / "part" / "a")
    assert find_task("a", repository / "part") == near
    assert [folder for folder in list_tasks(repository / "part") if folder.name == "a"] == [near]


@pytest.mark.parametrize("below", [".", "sub"])
def test_inside_its_folder_the_task_may_be_left_out(repository: Path, below: str) -> None:
    task = make_task(repository / "kernels" / "a")
    make_task(repository / "kernels" / "b")
    (task / "sub").mkdir()
    assert find_task(None, task / below) == task


@pytest.mark.usefixtures("nothing_shipped")
def test_the_only_task_around_may_be_left_out(repository: Path) -> None:
    task = make_task(repository / "kernels" / "a")
    assert find_task(None, repository) == task
    make_task(repository / "kernels" / "b")
    with pytest.raises(ProjectError, match="available: a, b"):
        find_task(None, repository)


@pytest.mark.usefixtures("nothing_shipped")
def test_no_task_says_how_to_make_one(repository: Path) -> None:
    with pytest.raises(ProjectError, match="kernbench new"):
        find_task(None, repository)


def test_an_unknown_name_says_what_there_is(repository: Path) -> None:
    make_task(repository / "kernels" / "a")
    with pytest.raises(ProjectError, match="no task 'z' here; available: a"):
        find_task("z", repository)


@pytest.mark.parametrize("name", ["row sum", "~nobody here"])
def test_the_name_that_its_task_file_gives_it(repository: Path, name: str) -> None:
    task = make_task(repository / "kernels" / "tb")
    (task / "task.toml").write_text(f'name = "{name}"\n')
    (make_task(repository / "kernels" / "torn") / "task.toml").write_text("name = \xff")
    assert find_task(name, repository) == task


def test_a_folder_goes_before_a_name(repository: Path) -> None:
    (make_task(repository / "kernels" / "a") / "task.toml").write_text('name = "b"\n')
    task = make_task(repository / "kernels" / "b")
    assert find_task("b", repository) == task


def test_two_tasks_of_one_name_are_both_named(repository: Path) -> None:
    folders = [make_task(repository / "kernels" / name) for name in ("a", "b")]
    for folder in folders:
        (folder / "task.toml").write_text('name = "row sum"\n')
    with pytest.raises(ProjectError, match=r"2 tasks are named 'row sum': .*/a and .*/b; give a folder"):
        find_task("row sum", repository)


def test_a_home_that_is_nobodys_is_no_task(repository: Path) -> None:
    with pytest.raises(ProjectError, match="no task '~nobody_here' here"):
        find_task("~nobody_here", repository)


def test_a_folder_without_a_task(repository: Path) -> None:
    (repository / "empty").mkdir()
    with pytest.raises(ProjectError, match=r"without a task\.toml"):
        find_task("empty", repository)


def test_a_file_outside_any_task(repository: Path) -> None:
    (repository / "notes.txt").write_text("")
    with pytest.raises(ProjectError, match="not in a task's folder"):
        find_task("notes.txt", repository)


def test_a_shipped_task_is_found_by_name_from_anywhere(tmp_path: Path) -> None:
    assert find_task("softmax_host", tmp_path) == shipped_tasks()["softmax_host"].resolve()


def test_an_installed_task_is_copied_not_edited(installed: Path, repository: Path) -> None:
    with pytest.raises(ProjectError, match="kernbench new NAME --from shipped"):
        find_task("shipped", repository)
    assert find_task("shipped", repository, to_edit=False) == installed
    assert list_tasks(repository) == []


def test_the_state_folder_hides_itself_from_git(tmp_path: Path) -> None:
    state = state_dir(tmp_path)
    assert state == tmp_path / ".kernbench"
    assert (state / ".gitignore").read_text() == "*\n"
    assert state_dir(tmp_path) == state
    (state / ".gitignore").unlink()
    state_dir(tmp_path)
    assert (state / ".gitignore").read_text() == "*\n"


def test_it_is_hidden_again_by_whoever_makes_it_anew(tmp_path: Path) -> None:
    state = state_dir(tmp_path)
    (tmp_path / "solution.py").write_text("")
    for make in (
        lambda: Logbook(tmp_path, state).take_source(),
        lambda: RunsFile(state / "runs.jsonl").append("{}"),
        lambda: clipboard.keep("text", "the row", state, {}),
        lambda: WorkbenchLock(state).announce(),
    ):
        shutil.rmtree(state)
        make()
        assert (state / ".gitignore").read_text() == "*\n"


def test_a_full_disk_under_the_state_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")  # as a write says it, without a file

    (tmp_path / "solution.py").write_text("")
    state = state_dir(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(ProjectError, match=r"\(No space left on device\): cannot write to .*\.kernbench; use `--state"):
        Logbook(tmp_path, state).take_source()


def test_a_state_folder_that_was_there_is_left_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    assert state_dir(tmp_path / "task", mine) == mine
    assert list(mine.iterdir()) == []


def test_a_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProjectError, match="--state DIR"):
        state_dir(tmp_path / "file")
