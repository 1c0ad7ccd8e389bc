"""What the machine says of itself, and the words that stand beside the times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.device import environment
from harness.shared.run_request import Environment, RunRequest
from harness.shared.taskfile import load
from tests.harness.child import write_task


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [(["64K", "1024K", "32768K"], 32 << 20), (["48K", "2M"], 2 << 20), ([], environment.DEFAULT_CACHE)],
)
def test_the_largest_cache_counts(tmp_path: Path, sizes: list[str], expected: int) -> None:
    for index, size in enumerate(sizes):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert environment.last_level_cache(str(tmp_path)) == expected


def test_the_condition_says_how_it_was_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "last_level_cache", lambda: 8 << 20)
    task, cpu = load(write_task(tmp_path)), Environment(device="cpu")
    assert environment.for_task(cpu, RunRequest("r", task, "/s")).condition == "cold caches (16 MiB rotated), 1 thread"
    mutating = replace(task, mutates=("x",), threads=2)
    changed = environment.for_task(cpu, RunRequest("r", mutating, "/s")).condition
    assert changed == "cold caches (16 MiB rotated, mutated inputs warm), 2 threads"


def test_a_gpu_task_on_a_cpu_is_interpreted_and_a_cpu_task_stays_on_the_cpu(tmp_path: Path) -> None:
    task = load(write_task(tmp_path))
    interpreted = environment.for_task(Environment(device="cpu"), RunRequest("r", replace(task, device="cuda"), "/s"))
    assert (interpreted.interpreted, interpreted.condition) == (True, "interpreted, not timed")
    (tmp_path / "solution.cu").touch()
    (tmp_path / "solution.py").write_text("from harness.cuda import Module\n")
    request = RunRequest("r", replace(task, device="cuda"), str(tmp_path))
    assert environment.for_task(Environment(device="cpu"), request).condition == "solution.cu not compiled, not timed"
    beside = environment.for_task(Environment(device="cuda:0", device_name="NVIDIA H200"), RunRequest("r", task, "/s"))
    assert (beside.device, beside.interpreted, beside.threads, beside.l2) == ("cpu", False, 1, "")
    assert beside.device_name == environment.processor()
