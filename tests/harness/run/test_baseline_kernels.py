"""A compiled baseline that another worker chose differently is reported once."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.activity import Activity, Record
from harness.run import baseline_kernels


def calls(*names: str, grid: int = 132, shared: int = 0) -> list[Activity]:
    launch = baseline_kernels.LAUNCH.pack(grid, 1, 1, 256, 1, 1, 16, shared)
    records = tuple(Record(name, 1, 2, 7, number, launch=launch) for number, name in enumerate(names))
    return [Activity(records), Activity(records[:1]), Activity(records)]


def compare(folder: Path, found: list[Activity], case: str = "a") -> str | None:
    finding = baseline_kernels.compare(str(folder), case, found)
    return finding.help if finding is not None else None


def test_the_same_kernels_are_nothing_to_tell(tmp_path: Path) -> None:
    assert [compare(tmp_path, calls("fused", "sum")) for _ in range(3)] == [None] * 3
    assert compare(tmp_path, calls("other"), case="b") is None


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (calls("fused", grid=66), "`fused grid 66x1x1 block 256x1x1 shared 16`, in an earlier worker `fused grid 132"),
        (
            calls("fused", shared=1024),
            "shared 1040`, in an earlier worker `fused grid 132x1x1 block 256x1x1 shared 16`",
        ),
        (calls("split"), "`split grid 132"),
        (calls("fused", "fused"), "runs 2 kernels, in an earlier worker 1 kernel"),
    ],
)
def test_another_name_grid_or_configuration_is_told_of_once(tmp_path: Path, now: list[Activity], says: str) -> None:
    compare(tmp_path, calls("fused"))
    assert says in (compare(tmp_path, now) or "")
    assert compare(tmp_path, now) is None


def test_records_that_do_not_say_how_they_were_launched_are_not_compared(tmp_path: Path) -> None:
    compare(tmp_path, calls("fused"))
    bare = [Activity(tuple(record._replace(launch=b"") for record in call.records)) for call in calls("other")]
    assert compare(tmp_path, bare) is None
    assert compare(tmp_path, []) is None
    assert compare(tmp_path, calls("fused")) is None


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 3}', "\x00"])
def test_a_file_that_is_no_record_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / baseline_kernels.FILE).write_text(text)
    assert compare(tmp_path, calls("fused")) is None
    assert compare(tmp_path, calls("other")) is not None


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert compare(tmp_path / "nowhere", calls("fused")) is None
