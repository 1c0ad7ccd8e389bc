"""The nearer of two bounds, with made-up peaks; on a GPU, the peaks themselves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.device import roofline
from harness.device.gpu import Gpu
from harness.device.roofline import ComputePeaks, Traffic
from harness.shared.results import CaseResult, InputForm
from harness.timing import case_timer

BANDWIDTH, PEAK = 4e12, 800e12
FORMS = (
    InputForm("a", (4096, 4096), (4096, 1), "bfloat16"),
    InputForm("b", (4096, 4096), (4096, 1), "bfloat16"),
    InputForm("scale", (4096,), (1,), "float32"),
    InputForm("index", (4096, 8192), (8192, 1), "int64"),
    InputForm("transposed", value=True),
)
PRODUCT = Traffic(2 * 4096**2 * 2, 4096**2 * 2, 2 * 4096**3)
"""About 25 us at the bandwidth, 172 us at the peak."""


def fake_gpu() -> Any:
    return SimpleNamespace(uuid="GPU-1", l2_bytes=50 << 20, nvml=SimpleNamespace(memory_peak=lambda: 4.8e12))


class Meter:
    """A made-up measurement; None while it cannot be made."""

    def __init__(self, peak: float | None = PEAK) -> None:
        self.peak, self.asked = peak, []  # type: tuple[float | None, list[str]]

    def __call__(self, gpu: Gpu, dtype: str) -> float | None:
        self.asked.append(dtype)
        return self.peak


def test_the_longer_of_two_times_is_the_bound() -> None:
    assert roofline.nearer(PRODUCT, 200.0, BANDWIDTH, PEAK) == (pytest.approx(0.859, abs=0.001), "compute")
    narrow = Traffic(PRODUCT.read, PRODUCT.written, flops=1e10)
    assert roofline.nearer(narrow, 50.0, BANDWIDTH, PEAK) == (pytest.approx(0.503, abs=0.001), "memory")


def test_more_than_the_peak_means_that_the_flops_were_not_needed() -> None:
    assert roofline.nearer(PRODUCT, 165.0, BANDWIDTH, PEAK) == (pytest.approx(1.041, abs=0.001), "compute")
    assert roofline.nearer(PRODUCT, 40.0, BANDWIDTH, PEAK) == (pytest.approx(0.629, abs=0.001), "memory")


def test_torch_counts_the_flops_of_a_call() -> None:
    left, right, bias = torch.ones(3, 5), torch.ones(5, 7), torch.ones(7)
    assert roofline.counted_flops(lambda: torch.relu(left @ right + bias)) == 2 * 3 * 5 * 7
    assert roofline.counted_flops(lambda: torch.softmax(left, -1)) == 0


def test_a_few_flops_per_byte_bound_nothing() -> None:
    norm = Traffic(1e6, 1e6, flops=8e6)
    assert roofline.nearer(norm, 1.0, BANDWIDTH, None) == (pytest.approx(0.5), "memory")
    assert not roofline.needs_peak(norm)
    assert roofline.needs_peak(Traffic(1e6, 1e6, flops=9e6))


@pytest.mark.parametrize(("flops", "peak"), [(0.0, PEAK), (1e12, None)])
def test_without_flops_or_a_peak_it_is_the_share_of_the_copy(flops: float, peak: float | None) -> None:
    traffic = Traffic(PRODUCT.read, PRODUCT.written, flops)
    assert roofline.nearer(traffic, 50.0, BANDWIDTH, peak) == (roofline.fraction(traffic, 50.0, BANDWIDTH), None)


def test_a_peak_is_measured_once_for_the_dtype_of_most_elements() -> None:
    meter = Meter()
    peaks = ComputePeaks(meter)
    assert [peaks.of(fake_gpu(), FORMS) for _ in range(3)] == [PEAK] * 3
    assert meter.asked == ["bfloat16"]
    assert peaks.of(fake_gpu(), FORMS[2:]) == PEAK
    assert meter.asked == ["bfloat16", "float32"]


def test_more_than_the_peak_of_float32_is_compared_with_that_of_tf32() -> None:
    meter, floats = Meter(), FORMS[2:]
    peaks = ComputePeaks(meter)
    assert [peaks.of(fake_gpu(), floats, reached) for reached in (0.99 * PEAK, 1.04 * PEAK)] == [PEAK] * 2
    assert meter.asked == ["float32"]
    meter.peak = 7 * PEAK
    assert peaks.of(fake_gpu(), floats, 1.8 * PEAK) == 7 * PEAK
    assert peaks.of(fake_gpu(), FORMS, 8 * PEAK) == 7 * PEAK
    assert meter.asked == ["float32", "tf32", "bfloat16"]


def test_a_dtype_without_a_peak_is_not_measured() -> None:
    meter = Meter()
    eighth = InputForm("x", (64, 64), (64, 1), "float8_e4m3fn")
    assert [ComputePeaks(meter).of(fake_gpu(), forms) for forms in ((eighth,), FORMS[3:], ())] == [None] * 3
    assert meter.asked == []


def test_a_copy_slowed_down_by_another_program_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [2.9e12, 2.6e12, 4.1e12, 2.6e12]
    monkeypatch.setattr(roofline, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(roofline, "_copies", lambda _gpu: measured.pop(0))
    assert [roofline.copy_bandwidth(fake_gpu()) for _ in range(4)] == [2.9e12, 2.9e12, 4.1e12, 4.1e12]
    (tmp_path / "bandwidth.json").write_text('{"GPU-1": 1.5e12}')
    assert roofline.copy_bandwidth(fake_gpu()) == 2.6e12
    assert measured == []


def test_a_copy_that_stayed_in_the_l2_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [6e12, 4.1e12]
    monkeypatch.setattr(roofline, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(roofline, "_copies", lambda _gpu: measured.pop(0))
    assert [roofline.copy_bandwidth(fake_gpu()) for _ in range(3)] == [4.8e12, 4.1e12, 4.1e12]


def test_a_peak_that_could_not_be_measured_is_tried_again() -> None:
    meter = Meter(None)
    peaks = ComputePeaks(meter)
    assert peaks.of(fake_gpu(), FORMS) is None
    meter.peak = PEAK
    assert peaks.of(fake_gpu(), FORMS) == PEAK


@pytest.mark.parametrize(
    ("traffic", "bound", "asked"),
    [(PRODUCT, "compute", 1), (Traffic(1e8, 1e8), None, 0), (Traffic(1e8, 1e8, 4e8), "memory", 0)],
)
def test_a_row_gets_its_bound_and_only_many_flops_need_a_peak(
    monkeypatch: pytest.MonkeyPatch, traffic: Traffic, bound: str | None, asked: int
) -> None:
    meter = Meter()
    monkeypatch.setattr(case_timer, "_peaks", ComputePeaks(meter))
    timer = case_timer.CaseTimer(SimpleNamespace(condition="cold"), fake_gpu())  # type: ignore[arg-type]
    row = CaseResult("a", "ok", clock="device", solution_us=200.0, inputs=FORMS)
    found = timer.with_roofline(row, traffic, BANDWIDTH, lambda: None)
    assert (found.bound, len(meter.asked)) == (bound, asked)
    assert found.roofline == roofline.nearer(traffic, 200.0, BANDWIDTH, PEAK)[0]


@pytest.mark.gpu
def test_the_peaks_of_this_gpu() -> None:
    gpu, before = Gpu("cuda:0"), torch.cuda.get_rng_state()
    torch.set_float32_matmul_precision("high")
    try:
        rates = {dtype: roofline._matmul_rate(gpu, dtype) or 0.0 for dtype in roofline.MATMULS}
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert 1e12 < rates["float32"] < rates["tf32"] < rates["bfloat16"] < 1e16
    assert rates["float16"] == pytest.approx(rates["bfloat16"], rel=0.3)
    assert torch.equal(before, torch.cuda.get_rng_state())
