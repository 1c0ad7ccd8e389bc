"""Which files of a task's folder are its source."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.task import snapshot
from tests.sessions import Watched, write

BESIDE = (
    "report.html numbers.csv notes.txt README.md 4913 #solution.cpp# solution.cpp.orig compile_commands.json a.out "
    "solution.o tags perf.data Makefile out.jsonl err.txt sub/y.txt solution.py~ .solution.py.swp"
).split()


def make(folder: Path, name: str, text: str = "x") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def names(folder: Path) -> set[str]:
    return {path.as_posix() for path in snapshot.source_files(folder)}


def test_what_lies_beside_the_source_is_no_part_of_it(tmp_path: Path) -> None:
    for name in ("solution.py", "solution.cu", "tile.cuh", "inc/rows.hpp", "task.toml", "cases.json"):
        make(tmp_path, name)
    before = names(tmp_path), snapshot.sha_of(tmp_path, tmp_path / ".kernbench")
    for name in BESIDE:
        make(tmp_path, name)
    assert (names(tmp_path), snapshot.sha_of(tmp_path, tmp_path / ".kernbench")) == before
    assert len(before[0]) == 6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tuned.json", "json.loads((HERE / 'tuned.json').read_text())"),
        ("tables/64.csv", "open(f'{HERE}/tables/{rows}.csv')"),
        ("weights", 'np.fromfile(HERE / "weights")'),
        ("poly.data", '#include "poly.data"'),
        ("unrolled.txt", "#include <gen/unrolled.txt>"),
    ],
)
def test_a_file_that_the_source_reads_is_part_of_it(tmp_path: Path, name: str, text: str) -> None:
    make(tmp_path, name)
    make(tmp_path, "solution.py", "pass")
    assert names(tmp_path) == {"solution.py"}
    make(tmp_path, "solution.py", text)
    assert names(tmp_path) == {"solution.py", name}


@pytest.mark.anyio
async def test_a_note_beside_the_source_is_no_iteration(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    (folder / "notes.txt").write_text("an export, a log, a list")
    write(folder, "TIME_US = 40.0")
    await it.ended(2)
    (folder / "report.html").write_text("<html>")
    write(folder, "TIME_US = 30.0")
    await it.ended(3)
    assert [entry.iteration for entry in it.session.logbook.iterations()] == [1, 2, 3]


def test_a_file_that_lives_for_a_moment_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "solution.py").write_text("x = 1")
    (tmp_path / "4913").write_text("")
    stat = Path.stat

    def gone(path: Path, **named: bool) -> os.stat_result:
        about = stat(path, **named)
        if path.name == "4913":
            path.unlink()  # right after somebody saw it
        return about

    monkeypatch.setattr(Path, "stat", gone)
    monkeypatch.setattr(Path, "is_file", lambda path: path.stat() is not None)
    assert snapshot.source_files(tmp_path) == [Path("solution.py")]


def test_a_full_disk_keeps_no_half_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, state = tmp_path / "task", tmp_path / "state"
    folder.mkdir()
    (folder / "solution.py").write_text("x = 1")

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            snapshot.take(folder, state)
    assert list((state / "sources").iterdir()) == []
    assert snapshot.take(folder, state).folder.is_dir()


def test_the_state_is_no_part_of_the_source_however_it_is_spelled(tmp_path: Path) -> None:
    task, door = tmp_path / "task", tmp_path / "door"
    make(task, "solution.py")
    make(task, "notes/plan.py")
    door.symlink_to(task)
    before = snapshot.sha_of(task, task / ".kernbench")
    for state in (task / "notes" / ".." / "st", door / "st"):
        snapshot.take(task, state)
        assert snapshot.sha_of(task, state) == before
        assert set(snapshot.stamps(task, state)) == {"solution.py", "notes/plan.py"}


def test_a_linked_folder_is_part_of_the_source_and_a_circle_has_an_end(tmp_path: Path) -> None:
    task, state = tmp_path / "task", tmp_path / "common" / "st"
    make(task, "solution.py", "from lib.ops import f")
    make(tmp_path / "common", "ops.py", "def f(): ...")
    make(state, "kept.py")
    for place in ("lib", "again"):
        (task / place).symlink_to("../common")
    (tmp_path / "common" / "round").symlink_to("../task")
    (task / "up").symlink_to("..")
    assert [path.as_posix() for path in snapshot.source_files(task, state)] == [
        "solution.py",
        "again/ops.py",
        "lib/ops.py",
    ]
    assert (snapshot.take(task, state).folder / "lib" / "ops.py").read_text() == "def f(): ..."


def test_folders_that_link_to_one_another_are_told_once_each(tmp_path: Path) -> None:
    """Not in every order: 8 of them would be 100,000 paths."""
    task = tmp_path / "task"
    for name in "abcdefgh":
        (task / name).mkdir(parents=True)
        (task / name / "ops.py").write_text("x = 1\n")
        for other in "abcdefgh".replace(name, ""):
            (task / name / other).symlink_to(f"../{other}")
    assert len(snapshot.source_files(task)) == 8 + 8 * 7


@pytest.mark.parametrize(
    ("line", "is_part"),
    [
        ('open("notes.md")', True),
        ("open('out/notes.md')", True),
        ("#include <notes.md>", True),
        ('x = "a" + "notes.md"', True),
        ('open("old-notes.md")', False),
        ("# see notes.md", False),
    ],
)
def test_what_lies_beside_is_part_where_it_is_named(tmp_path: Path, line: str, is_part: bool) -> None:
    (tmp_path / "solution.py").write_text(f"{line}\n")
    (tmp_path / "notes.md").write_text("mine\n")
    assert (Path("notes.md") in snapshot.source_files(tmp_path)) == is_part


def test_a_link_to_a_store_of_data_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_LINKED", 3)
    make(tmp_path / "task", "solution.py")
    (tmp_path / "task" / "images").symlink_to(tmp_path / "store")
    for number in range(3):
        make(tmp_path / "store", f"sub/{number}.bin")
    assert len(names(tmp_path / "task")) == 4
    make(tmp_path / "store", "one.bin")
    assert names(tmp_path / "task") == {"solution.py"}


def test_a_file_that_nobody_may_look_at_is_named_when_the_source_is_taken(tmp_path: Path) -> None:
    make(tmp_path / "task", "solution.py")
    for name in ("lib.py", "notes.md"):
        (tmp_path / "task" / name).symlink_to("x" * 300)  # longer than any name
    assert set(snapshot.stamps(tmp_path / "task", None)) == {"solution.py"}
    with pytest.raises(OSError, match=r"lib\.py"):
        snapshot.take(tmp_path / "task", tmp_path / "state")


def test_what_was_read_once_is_not_read_at_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "solution.py", "open('table.csv')")
    make(tmp_path, "table.csv")
    make(tmp_path, "README.md")
    assert names(tmp_path) == {"solution.py", "table.csv"}
    read, texts = list[Path](), Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **how: read.append(path) or texts(path, **how))
    assert names(tmp_path) == {"solution.py", "table.csv"}
    assert read == []
    make(tmp_path, "solution.py", "nothing")
    assert names(tmp_path) == {"solution.py"}


def test_texts_are_not_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_TEXTS", 3)
    for number in range(8):
        make(tmp_path / f"task{number}", "solution.py", 'open("notes.md")')
        make(tmp_path / f"task{number}", "notes.md")
        assert len(snapshot.source_files(tmp_path / f"task{number}")) == 2
    assert len(snapshot._texts) <= 3
