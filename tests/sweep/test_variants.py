"""Which variants a sweep has, which of them are timed when, and how they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.results import Ratio
from harness.shared.task import Task
from kernbench.sweep import halving, sweep_report, variants
from kernbench.sweep.halving import Round, Standing
from kernbench.sweep.sweep_report import SweepReport
from kernbench.sweep.variants import Setting, Variant
from kernbench.task import snapshot


@pytest.fixture
def task(folder: Path) -> Task:
    (folder / "solution.py").write_text("A = 1\nB = 2\ndef toy(): ...\n")
    return taskfile.load(folder)


def contents(task: Task) -> dict[str, bytes]:
    return snapshot.read(Path(task.folder))


def test_every_combination_and_the_source_as_it_is_once(task: Task) -> None:
    settings = [Setting.parse("A=1,3"), Setting.parse("B=2, 4,(5,6),4")]
    found = variants.of_constants(contents(task), task, settings)
    assert [variant.name for variant in found] == [
        "as it is",
        "A=1 B=4",
        "A=1 B=(5,6)",
        "A=3 B=2",
        "A=3 B=4",
        "A=3 B=(5,6)",
    ]
    assert (found[0].is_now, found[0].values) == (True, ("1", "2"))
    assert found[2].contents["solution.py"] == b"A = 1\nB = (5,6)\ndef toy(): ...\n"


def test_a_sample_is_the_same_every_time(task: Task) -> None:
    settings = [Setting.parse("A=" + ",".join(map(str, range(1000)))), Setting.parse("B=1,2,3,4")]
    first, second = (variants.of_constants(contents(task), task, settings, 10) for _ in range(2))
    assert [item.name for item in first] == [item.name for item in second]
    assert len(first) == 11
    with pytest.raises(UserError, match="4000 variants are too many; `--sample 64`"):
        variants.of_constants(contents(task), task, settings)


@pytest.mark.parametrize("text", ["A", "A=", "=1", "a b=1", "4=1", "A=,"])
def test_a_setting_that_is_none(text: str) -> None:
    with pytest.raises(UserError, match="expected NAME=VALUE,VALUE"):
        Setting.parse(text)


def test_files_of_a_folder_replace_the_file_of_their_kind(task: Task, tmp_path: Path) -> None:
    folder = tmp_path / "tries"
    folder.mkdir()
    with pytest.raises(UserError, match="has no variants"):
        variants.of_folder(contents(task), task, folder)
    (folder / "fast.py").write_text("def toy(): pass\n")
    (folder / "same.py").write_bytes((Path(task.folder) / "solution.py").read_bytes())
    found = variants.of_folder(contents(task), task, folder)
    assert [(item.name, item.values) for item in found] == [("as it is", ("same.py",)), ("fast.py", ("fast.py",))]
    assert found[1].contents["solution.py"] == b"def toy(): pass\n"
    (folder / "other.cu").write_text("")
    with pytest.raises(UserError, match=r"other.cu: which file does it replace\? The solution has no .cu file"):
        variants.of_folder(contents(task), task, folder)


def test_half_stay_each_time_and_the_budget_doubles() -> None:
    assert halving.rounds(4) == []
    assert halving.rounds(15) == [Round(15, 8, 0.125), Round(8, 4, 0.25)]
    assert [(item.variants, item.share) for item in halving.rounds(100)][:2] == [(100, 1 / 8), (50, 1 / 8)]


def standing(name: str, speedup: float | None, **values: object) -> Standing:
    ratio = None if speedup is None else Ratio(speedup, speedup * 0.99, speedup * 1.01, "faster")
    status = "wrong" if speedup is None else "ok"
    return replace(Standing(Variant(name, tuple(name), {}), status, ratio=ratio), **values)  # type: ignore[arg-type]


def test_one_that_looks_faster_than_the_winner_is_timed_in_full_too() -> None:
    full = [standing(name, speedup, is_full=True) for name, speedup in zip("abcd", (1.1, 1.2, 1.0, 0.9), strict=True)]
    slower, faster, wrong = standing("e", 1.15), standing("f", 1.3), standing("g", None)
    assert halving.next_finalist([*full[:3], slower, wrong]) is slower
    assert halving.next_finalist([*full, slower, wrong]) is None
    assert halving.next_finalist([*full, slower, faster]) is faster
    assert halving.winner([*full, slower, faster, wrong]) is full[1]


def test_a_speedup_over_a_speedup() -> None:
    found = halving.times(Ratio(1.1, 1.09, 1.11, "faster"), Ratio(0.9, 0.89, 0.91, "slower"))
    assert found.speedup == pytest.approx(0.99)
    assert found.low < 0.98 < found.high
    assert found.verdict == "unclear"


def test_table_and_heat_map() -> None:
    items = [standing("14", 1.3, is_full=True), standing("12", 1.1), standing("24", 1.0), standing("22", None)]
    found = SweepReport("toy", ("A", "B"), items, items[0], "as it is", seconds=3.0)
    assert sweep_report.heat_text(found, ascii_only=True) == [
        "A \\ B         2          4",
        "    1  1.100x .  *1.300x #",
        "    2     wrong   1.000x",
    ]
    assert sweep_report.table(found)[1].split()[:4] == ["1", "1", "4", "-"]
    assert "the winner" in sweep_report.table(found)[1]
    assert found.sentence.startswith("14 is the fastest: 1.300x ±1.0% over the source as it is; 4 variants")
    assert "| 22 |" not in sweep_report.markdown(found, "kernbench sweep toy")
    assert "wrong" in sweep_report.html(found, "kernbench sweep toy")
    alone = replace(found, names=("A",), standings=[standing("1", 1.0), standing("2", 1.1)])
    assert sweep_report.heat_map(alone) is None
