"""Which files of a task's folder are its source."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench import snapshot
from tests.engine.conftest import Watched, write

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
