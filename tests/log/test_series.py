"""What may be compared with what."""

from __future__ import annotations

from dataclasses import replace

from harness.shared.run_request import Environment
from kernbench.events import Summary
from kernbench.log.runs.series import Series, best_of, series_of

GPU = Environment(device="cuda:0", device_name="NVIDIA H200", condition="cold L2", l2="cold")
RUN = Summary(
    "r", "a" * 64, "2026-11-14T21:03:00+00:00", True, 2.0, best=True, baseline="eager", task_hash="t", environment=GPU
)


def test_another_state_of_the_l2_is_another_series() -> None:
    warm = replace(RUN, run="w", environment=replace(GPU, condition="warm L2", l2="warm"))
    assert [item.run for item in series_of([RUN, warm], Series.of(warm))] == ["w"]
    assert best_of(series_of([RUN, warm], Series("t", "eager", "NVIDIA H200", "dirty"))) is None


def test_so_are_another_task_baseline_or_device() -> None:
    others = [
        replace(RUN, task_hash="u"),
        replace(RUN, baseline="compile"),
        replace(RUN, environment=replace(GPU, device_name="NVIDIA H100")),
    ]
    assert series_of(others, Series.of(RUN)) == []


def test_on_a_cpu_the_words_beside_the_geomean_do_not_matter() -> None:
    cpu = replace(RUN, environment=Environment(device="cpu", device_name="N1", condition="inputs rotated over 64 MiB"))
    later = replace(cpu, environment=replace(cpu.environment, condition="inputs rotated over 64 MiB, 1 thread"))
    assert series_of([cpu], Series.of(later)) == [cpu]
