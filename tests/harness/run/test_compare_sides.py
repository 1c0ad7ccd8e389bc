"""The sides of `compare` in task.toml: timed after every verdict, shown, and without any say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.shared.lines import decode
from harness.shared.results import CaseResult
from tests.harness.child import SOLUTION, TASK, Child, results, write_task

SMALL = ("small",)
FAST = SOLUTION
SLOW = "import torch\ndef scale(x, factor):\n    return torch.stack([x * factor] * 40).mean(0)\n"


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def comparing(folder: Path, *names: str, **files: str) -> Path:
    task = TASK.replace('device = "cpu"', f'device = "cpu"\ncompare = {list(names)}'.replace("'", '"'))
    return write_task(folder, task_toml=task, **files)


def others(events: list[dict[str, Any]], case: str = "small") -> list[str]:
    return [side["name"] for side in results(events)[case]["others"]]


def notes(events: list[dict[str, Any]], case: str = "small") -> list[str]:
    return [finding["help"] for finding in results(events)[case]["findings"] if finding["code"] == "not_compared"]


def test_each_side_is_timed_next_to_the_solution(child: Child, tmp_path: Path) -> None:
    folder = comparing(tmp_path, "fast.py", "slow.py", fast_py=FAST, slow_py=SLOW)
    events = child.run(folder)
    for case in ("small", "large"):
        row = decode(CaseResult, results(events)[case])
        fast, slow = row.others
        assert (fast.name, slow.name) == ("fast.py", "slow.py")
        assert slow.speedup > 1.5 > fast.speedup > 0.3
        assert slow.low <= slow.speedup <= slow.high
        assert slow.us > 1.2 * fast.us > 0
        assert set(row.samples or ()) == {"baseline", "solution"}
    landed = [(event["result"]["id"], len(event["result"]["others"])) for event in events if event["event"] == "case"]
    assert landed == [("small", 0), ("large", 0), ("small", 2), ("large", 2)]  # no verdict waits for them


def test_what_is_the_baseline_of_the_run_is_not_timed_twice(child: Child, tmp_path: Path) -> None:
    folder = comparing(tmp_path, "fast.py", "slow.py", fast_py=FAST, slow_py=SLOW)
    assert others(child.run(folder, baseline="slow.py", cases=SMALL)) == ["fast.py"]


def test_the_reference_can_be_one(child: Child, tmp_path: Path) -> None:
    folder = comparing(tmp_path, "eager", baseline_py=SLOW)
    assert others(child.run(folder, baseline="baseline.py", cases=SMALL)) == ["eager"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def scale(x, factor):\n    raise ValueError('no')\n", "it failed (odd.py:2: ValueError: no)"),
        ("scale = undefined  # noqa\n", "it failed (odd.py:1: NameError: name 'undefined' is not defined)"),
        ("def scale(x, factor): return x * 3", "its result is wrong (output 0 differs at ["),
        (
            "n = []\ndef scale(x, factor):\n    n.append(1)\n    return x * 2 if len(n) < 3 else 1 / 0\n",
            "it failed on a repeated call",
        ),
    ],
)
def test_one_that_fails_or_is_wrong_is_left_out(child: Child, tmp_path: Path, source: str, why: str) -> None:
    folder = comparing(tmp_path, "odd.py", "fast.py", odd_py=source, fast_py=FAST)
    events = child.run(folder, cases=SMALL)
    row = decode(CaseResult, results(events)["small"])
    assert (row.status, row.checked, row.disqualifying) == ("ok", 2, False)
    assert [side.name for side in row.others] == ["fast.py"]
    (note,) = notes(events)
    assert note.startswith(f"odd.py is left out of this row: {why}")


def test_a_row_that_the_slow_checks_refuse_has_none(child: Child, tmp_path: Path) -> None:
    wrong = "def scale(x, factor): return (x * 2).clamp(-10, 10)"
    folder = comparing(tmp_path, "fast.py", fast_py=FAST, solution_py=wrong)
    events = child.run(folder, cases=SMALL)
    assert (results(events)["small"]["status"], others(events)) == ("wrong", [])


def test_a_source_must_not_write_their_files(child: Child, tmp_path: Path) -> None:
    writes = f"open({str(tmp_path / 'fast.py')!r}, 'a').close()\n"
    folder = comparing(tmp_path, "fast.py", fast_py=FAST, solution_py=writes + SOLUTION)
    events = child.run(folder, cases=SMALL)
    assert ["fast.py"] in [event["task_files"] for event in events if event["event"] == "wrote"]
