"""A task's folder of builds: what is used stays, what is not goes, and nobody's work in progress is touched."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from harness import host
from harness.load import builds


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images and three extensions, the oldest first; two of each may stay."""
    monkeypatch.setattr(builds, "MOST_IMAGES", 2)
    monkeypatch.setattr(builds, "MOST_EXTENSIONS", 2)
    folder = tmp_path / "build"
    for number in range(3):
        (folder / "extensions" / f"name-{number}").mkdir(parents=True)
        (folder / "extensions" / f"name-{number}" / "name.so").touch()
        os.utime(folder / "extensions" / f"name-{number}", (number, number))
    for number in range(4):
        for name in (f"solution-{number}.so",) if number % 2 else (f"k-{number}.json", f"k-{number}.cubin"):
            (folder / name).touch()
            os.utime(folder / name, (number, number))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_the_most_recently_used_stay(build: Path) -> None:
    os.utime(build / "k-0.json", (9, 0))  # read, not written
    builds.prune(str(build))
    assert names(build) == ["extensions", "k-0.cubin", "k-0.json", "solution-3.so"]
    assert names(build / "extensions") == ["name-1", "name-2"]


def test_a_folder_in_which_something_is_built_is_left(build: Path) -> None:
    before = names(build)
    (build / "part-x").mkdir()  # of a process that was killed
    with host.alone(str(build)):
        (build / "part-y").mkdir()
        builds.prune(str(build))
        assert names(build) == sorted([*before, "part-y"])
    builds.prune(str(build))
    assert not any(name.startswith("part-") for name in names(build))


def test_old_scraps_go_and_new_ones_stay(build: Path) -> None:
    for name, age in (("tmpa.so.part", 1), ("tmpb.part", None)):
        (build / name).touch()
        if age is not None:
            os.utime(build / name, (age, age))
    builds.prune(str(build))
    assert "tmpa.so.part" not in names(build)
    assert "tmpb.part" in names(build)


def test_links_are_removed_and_not_followed(build: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    (build / "part-link").symlink_to(tmp_path / "mine")
    builds.prune(str(build))
    assert not (build / "part-link").is_symlink()
    assert (tmp_path / "mine" / "file").exists()


def test_a_folder_that_is_missing_or_locked_by_another_is_no_error(build: Path, tmp_path: Path) -> None:
    builds.prune(str(tmp_path / "none"))
    handle = os.open(build, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        builds.prune(str(build))
    finally:
        os.close(handle)
    assert len(names(build)) == 7
