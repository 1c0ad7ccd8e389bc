"""The time below which a row on a CPU did not read its inputs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.device import cpu_bandwidth, environment
from harness.device.cpu_bandwidth import CpuBandwidth
from harness.device.roofline import Traffic
from harness.inputs.reference import Inputs
from harness.shared.results import CaseResult, Finding
from harness.timing import case_timer
from harness.timing.input_sets import CpuRotation, Rules

MIB = 1 << 20
TRAFFIC = Traffic(read=20 * MIB, written=20 * MIB)
ABOUT_1_MS = 20 * MIB / 20e9 * 1e6
"""Microseconds that it takes to read so much at 20 GB/s: 1048.6."""


def judge(*rates: float) -> tuple[CpuBandwidth, list[float]]:
    """One whose measurements give these rates in turn, and those that are left."""
    left = list(rates)
    return CpuBandwidth(lambda: left.pop(0)), left


def found(judge: CpuBandwidth, us: float, baseline_us: float | None = None, **more: Any) -> Finding | None:
    return judge.impossible(
        **{"traffic": TRAFFIC, "rotated": 20 * MIB, **more}, solution_us=us, baseline_us=baseline_us
    )


def test_a_row_that_is_faster_than_its_inputs_can_be_read_is_impossible() -> None:
    finding = found(judge(20e9, 20e9, 20e9)[0], 0.69 * ABOUT_1_MS)
    assert finding is not None
    assert (finding.code, finding.disqualifying) == ("impossible_time", True)
    assert finding.help.startswith("723.5 us, but the memory bus needs at least 734.0 us for these bytes")
    assert found(judge(20e9)[0], 0.71 * ABOUT_1_MS) is None


def test_what_is_written_does_not_count_nor_what_may_be_in_the_cache() -> None:
    us = 0.5 * ABOUT_1_MS
    assert found(judge(20e9)[0], us, rotated=10 * MIB) is None
    assert found(judge(20e9)[0], us, traffic=Traffic(10 * MIB, 100 * MIB)) is None
    assert found(judge()[0], us, rotated=0) is None


def test_small_inputs_are_not_judged() -> None:
    small = cpu_bandwidth.LEAST_READ - 1
    assert found(judge()[0], 0.001, rotated=small) is None
    assert found(judge(*[20e9] * 3)[0], 0.001, rotated=small + 1) is not None


def test_where_the_baseline_is_nearly_as_fast_the_bytes_are_wrong() -> None:
    """A lookup reads a few rows of its table; nothing has to be measured then."""
    assert found(judge()[0], 1.0, baseline_us=1.4) is None
    assert found(judge(*[20e9] * 3)[0], 1.0, baseline_us=1.5) is not None


def test_it_measures_once_and_in_doubt_again() -> None:
    bandwidth, left = judge(20e9, 18e9, 35e9, 1e9)
    assert found(bandwidth, 0.8 * ABOUT_1_MS) is None
    assert left == [18e9, 35e9, 1e9]
    assert found(bandwidth, 0.9 * ABOUT_1_MS) is None
    assert left == [18e9, 35e9, 1e9]
    assert found(bandwidth, 0.5 * ABOUT_1_MS) is None  # the first measurements were disturbed
    assert left == [1e9]


def test_every_number_of_threads_has_its_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    bandwidth, left = judge(20e9, 80e9)
    for threads in (1, 4, 1, 4):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert found(bandwidth, 0.9 * ABOUT_1_MS) is None
    assert left == []


def rotated(inputs: Inputs, mutates: tuple[str, ...] = (), total: int = 1 << 40) -> int:
    rotation: Any = SimpleNamespace(bytes=total)
    return case_timer._rotated(rotation, inputs, mutates)


def test_only_inputs_at_changing_addresses_count_and_no_gaps() -> None:
    x = torch.zeros(1000, 64)
    assert rotated({"x": x, "factor": 2.0}) == x.nbytes
    assert rotated({"x": x[:, :4], "y": x[0].expand(1000, 64)}) == 1000 * 16 + 64 * 4
    assert rotated({"x": x, "y": x.clone()}, mutates=("y",)) == x.nbytes
    assert rotated({"x": x.to_sparse()}) == 0
    assert rotated({"x": x}, total=2 * environment.last_level_cache() - 1) == 0  # too little memory to rotate in


@pytest.mark.parametrize(
    ("clock", "us", "codes"), [("wall", 1.0, ["impossible_time"]), ("wall", 2e3, []), ("events", 1.0, [])]
)
def test_a_row_on_a_cpu_gets_the_finding(
    monkeypatch: pytest.MonkeyPatch, clock: Any, us: float, codes: list[str]
) -> None:
    monkeypatch.setattr(case_timer, "_bandwidth", CpuBandwidth(lambda: 20e9))
    timer = case_timer.CaseTimer(SimpleNamespace(condition="cold"), None)  # type: ignore[arg-type]
    timer._rotated = 20 * MIB
    row = timer.with_roofline(CaseResult("a", "ok", clock=clock, solution_us=us), TRAFFIC, None, lambda: None)
    assert [finding.code for finding in row.findings] == codes
    assert row.roofline is None


def test_honest_reading_is_never_too_fast() -> None:
    """Half of the time that a plain sum takes is still possible."""
    x = torch.ones(512, 1024)
    rotation, best = CpuRotation([{"x": x}], Rules(), 1), float("inf")
    for _ in range(3 * rotation.count):
        inputs = rotation.take().inputs
        began = time.perf_counter_ns()
        torch.sum(inputs["x"])
        best = min(best, (time.perf_counter_ns() - began) / 1000)
    assert CpuBandwidth().impossible(Traffic(x.nbytes, 4), rotated({"x": x}), best, None) is None
    assert CpuBandwidth().impossible(Traffic(x.nbytes, 4), rotated({"x": x}), best / 10_000, None) is not None
