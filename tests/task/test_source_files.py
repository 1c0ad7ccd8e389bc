"""Which files in a task's folder are its source, and which start a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernbench.task import snapshot, source_files
from tests import ROOT

SOURCE = (
    "solution.py solution.cu tile.cuh inc/rows.hpp task.toml cases.json table.txt table.npy tuned.json tables/64.csv "
    "out.jsonl weights poly.data lib.so bench.sh conf.d/rows.h sub/cases.json"
).split()
NOT_SOURCE = (
    "report.html README.md README Makefile tags 4913 #solution.cpp# solution.cpp.orig compile_commands.json a.out "
    "solution.o perf.data run.log sub/plan.md solution.py~ .solution.py.swp ITERATIONS.md exports/rms_norm.csv "
    "__pycache__/solution.py .venv/lib.py chart.png rows.ncu-rep change.patch old.bak"
).split()
STARTS_RUN = "solution.py sub/ops.py solution.cu rows.cuh rows.inc rows.cl rows.metal task.toml cases.json".split()
STARTS_RUN += "lib.so a.cubin a.ptx".split()
DATA = "table.txt tuned.json other.toml sub/cases.json sub/task.toml weights bench.sh table.npy".split()


def make(folder: Path, name: str, text: str = "x") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def names(folder: Path, *ignore: str) -> set[str]:
    return {path.as_posix() for path in source_files.source_files(folder, ignore=ignore)}


@pytest.mark.parametrize(("files", "is_part"), [(SOURCE, True), (NOT_SOURCE, False)])
def test_every_file_is_source_but_those_of_the_list(tmp_path: Path, files: list[str], is_part: bool) -> None:
    make(tmp_path, "solution.py", "open('README.md')  # what the code names makes no difference")
    for name in files:
        make(tmp_path, name)
    assert names(tmp_path) == ({*files} if is_part else {"solution.py"})


def test_the_guide_lists_what_is_not_source() -> None:
    guide = (ROOT / "src" / "kernbench" / "guide" / "tasks.md").read_text()
    listed = guide[guide.index("The source is every file") : guide.index("Linked folders")].replace("`", " ")
    words = {word.strip(",") for word in listed.split()}
    rule = source_files.NOT_SOURCE_NAMES | source_files.NOT_SOURCE_SUFFIXES | source_files.SKIPPED
    assert rule - words == {"4913", "TAGS"}


def test_a_file_over_1_mb_is_not_source(tmp_path: Path) -> None:
    make(tmp_path, "exact.bin", "x" * source_files.LARGEST_FILE)
    make(tmp_path, "large.bin", "x" * (source_files.LARGEST_FILE + 1))
    assert names(tmp_path) == {"exact.bin"}
    assert set(source_files.stamps(tmp_path, None)) == {"exact.bin"}


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("out.pt", {"solution.py", "data/a.npy", "data/b.bin"}),
        ("*.pt", {"solution.py", "data/a.npy", "data/b.bin"}),
        ("data", {"solution.py", "out.pt", "sub/out.pt"}),
        ("data/*.npy", {"solution.py", "out.pt", "sub/out.pt", "data/b.bin"}),
        ("sub/out.pt", {"solution.py", "out.pt", "data/a.npy", "data/b.bin"}),
        ("OUT.PT", {"solution.py", "out.pt", "sub/out.pt", "data/a.npy", "data/b.bin"}),
    ],
)
def test_what_ignore_names_is_not_source(tmp_path: Path, pattern: str, left: set[str]) -> None:
    for name in ("solution.py", "out.pt", "sub/out.pt", "data/a.npy", "data/b.bin"):
        make(tmp_path, name)
    assert names(tmp_path, pattern) == left
    assert set(source_files.stamps(tmp_path, None, [pattern])) == left


@pytest.mark.parametrize(("files", "starts"), [(STARTS_RUN, True), (DATA, False)])
def test_code_and_the_task_start_a_run(files: list[str], starts: bool) -> None:
    assert {name for name in files if source_files.starts_run(name) != starts} == set()


@pytest.mark.parametrize("is_gone_before", [True, False])
def test_a_file_that_lives_for_a_moment_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone_before: bool
) -> None:
    make(tmp_path, "solution.py")
    make(tmp_path, "5036")  # vim's, where 4913 is taken
    stat = Path.stat

    def gone(path: Path, **named: bool) -> os.stat_result:
        if path.name == "5036" and is_gone_before:
            path.unlink()
        about = stat(path, **named)
        if path.name == "5036":
            path.unlink()
        return about

    monkeypatch.setattr(Path, "stat", gone)
    assert list(snapshot.read(tmp_path)) == ["solution.py"]


def test_the_state_is_not_source_however_it_is_spelled(tmp_path: Path) -> None:
    task, door = tmp_path / "task", tmp_path / "door"
    make(task, "solution.py")
    make(task, "notes/plan.py")
    door.symlink_to(task)
    before = snapshot.sha_of(task, task / ".kernbench")
    for state in (task / "notes" / ".." / "st", door / "st"):
        snapshot.take(task, state)
        assert snapshot.sha_of(task, state) == before
        assert set(source_files.stamps(task, state)) == {"solution.py", "notes/plan.py"}


def test_a_linked_folder_is_part_of_the_source_and_a_circle_has_an_end(tmp_path: Path) -> None:
    task, state = tmp_path / "task", tmp_path / "common" / "st"
    make(task, "solution.py", "from lib.ops import f")
    make(tmp_path / "common", "ops.py", "def f(): ...")
    make(state, "kept.py")
    for place in ("lib", "again"):
        (task / place).symlink_to("../common")
    (tmp_path / "common" / "round").symlink_to("../task")
    (task / "up").symlink_to("..")
    assert [path.as_posix() for path in source_files.source_files(task, state)] == [
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
    assert len(source_files.source_files(task)) == 8 + 8 * 7


def test_a_link_to_a_store_of_data_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_LINKED", 3)
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
    assert set(source_files.stamps(tmp_path / "task", None)) == {"solution.py"}
    with pytest.raises(OSError, match=r"lib\.py"):
        snapshot.take(tmp_path / "task", tmp_path / "state")
