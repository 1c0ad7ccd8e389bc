"""Only the solution's files can be written: nothing of the task's, nothing outside, nothing over a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.log import stored_sources
from kernbench.log.runs.journal import Journal
from kernbench.mcp_server.answers import WriteAnswer
from kernbench.mcp_server.source_writing import NotWritten, write
from kernbench.mcp_server.task_answers import restored
from kernbench.task import snapshot


def put(folder: Path, path: str, text: str = "x = 1\n") -> WriteAnswer:
    return write(taskfile.load(folder), folder / ".kernbench", path, text)


def everything(place: Path) -> dict[str, bytes]:
    files = [path for path in place.rglob("*") if path.is_file() and ".kernbench" not in path.parts]
    return {str(path): path.read_bytes() for path in files}


def test_a_file_is_written_and_the_one_before_it_is_kept(folder: Path) -> None:
    before = (folder / "solution.py").read_text()
    (folder / "solution.py").chmod(0o600)
    answer = put(folder, "solution.py", "def toy(): ...\n")
    assert (answer.changed, (folder / "solution.py").read_text()) == (True, "def toy(): ...\n")
    assert (folder / "solution.py").stat().st_mode & 0o777 == 0o600
    task = taskfile.load(folder)
    kept = stored_sources.find(task, Journal(folder / ".kernbench"), answer.kept)
    assert stored_sources.texts(kept, task)["solution.py"] == before
    assert put(folder, "solution.py", "def toy(): ...\n") == WriteAnswer("toy", "solution.py", False, "")
    assert put(folder, "parts/loads.cuh").path == "parts/loads.cuh"
    assert (folder / "parts" / "loads.cuh").is_file()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("task.toml", "belongs to the task"),
        ("cases.json", "belongs to the task"),
        ("reference.py", "belongs to the task"),
        ("rules.py", "belongs to the task"),
        ("../solution.py", "inside the task's folder"),
        ("parts/../../solution.py", "inside the task's folder"),
        ("parts/../reference.py", "inside the task's folder"),
        ("./reference.py", "inside the task's folder"),
        ("parts//x.py", "inside the task's folder"),
        ("/tmp/x.py", "inside the task's folder"),
        ("", "inside the task's folder"),
        ("x\0.py", "inside the task's folder"),
        ("x\n.py", "inside the task's folder"),
        (f"{'x' * 300}.py", "longer than 200 bytes"),
        ("ITERATIONS.md", "not part of a source"),
        ("notes.md", "not part of a source"),
        (".kernbench/runs.jsonl", "not part of a source"),
        (".git/hooks/pre-commit", "not part of a source"),
        ("exports/x.py", "not part of a source"),
        ("data/x.py", "not part of a source"),
        ("math.py", "would change the task"),
        ("math/__init__.py", "would change the task"),
        ("more.py", "would change the task"),
        ("baseline.py", "would change the task"),
    ],
)
def test_everything_else_is_refused(folder: Path, path: str, said: str) -> None:
    (folder / "task.toml").write_text('ignore = ["data"]\n' + (folder / "task.toml").read_text())
    (folder / "reference.py").write_text("import math\nimport rules\n" + (folder / "reference.py").read_text())
    (folder / "rules.py").write_text("import more\n")
    before = everything(folder.parent)
    with pytest.raises(NotWritten, match=said):
        put(folder, path, "def toy(): ...\n")
    assert everything(folder.parent) == before


def test_a_file_that_makes_the_task_unreadable_is_refused(folder: Path) -> None:
    with pytest.raises(NotWritten, match="with it, the task cannot be read"):
        put(folder, "baseline.py", "no entry here\n")


@pytest.mark.parametrize("path", ["solution.py", "parts/x.py", "nowhere.py", "parts"])
def test_nothing_is_written_over_or_through_a_link(folder: Path, path: str) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "mine.py").write_text("mine\n")
    os.link(folder / "solution.py", outside / "original.py")
    (folder / "solution.py").unlink()
    (folder / "solution.py").symlink_to(outside / "original.py")
    (folder / "parts").symlink_to(outside, target_is_directory=True)
    (folder / "nowhere.py").symlink_to(outside / "missing.py")
    before = everything(folder.parent)
    with pytest.raises(NotWritten, match="is a link; replace it with a copy first"):
        put(folder, path)
    assert everything(folder.parent) == before


def test_a_hard_link_outside_keeps_its_text(folder: Path) -> None:
    os.link(folder / "solution.py", folder.parent / "same.py")
    before = (folder.parent / "same.py").read_text()
    assert put(folder, "solution.py", "def toy(): ...\n").changed
    assert (folder.parent / "same.py").read_text() == before


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("solution.py/x.py", "", "solution.py is not a folder"),
        ("solution.py", "#" * (1 << 20) + "#", "over 1 MB"),
        ("solution.py", "\ud800", "not valid Unicode"),
    ],
)
def test_what_cannot_be_a_file_of_a_source(folder: Path, path: str, text: str, said: str) -> None:
    with pytest.raises(NotWritten, match=said):
        put(folder, path, text)


def test_a_folder_in_its_place_is_left_alone(folder: Path) -> None:
    (folder / "parts.py").mkdir()
    with pytest.raises(NotWritten, match=r"parts\.py is not a plain file"):
        put(folder, "parts.py")


def test_restoring_is_bound_by_the_same_rules(folder: Path) -> None:
    state = folder / ".kernbench"
    (folder / "baseline.py").write_text((folder / "solution.py").read_text())
    kept = snapshot.take(folder, state, taskfile.load(folder)).sha
    (folder / "baseline.py").unlink()
    task, before = taskfile.load(folder), everything(folder)
    with pytest.raises(NotWritten, match=r"baseline\.py was not written"):
        restored(task, state, kept[:8])
    assert everything(folder) == before
