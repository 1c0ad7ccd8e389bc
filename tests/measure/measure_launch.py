"""Whether a side gains by its launches: the same kernel against itself, one side with additional host time, or with
CUDA events that it records before and after its kernel.

python -m tests.measure.measure_launch     (on a GPU)
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from harness.device.gpu import Gpu
from harness.timing import clocks
from harness.timing.blocks import Bench
from harness.timing.input_sets import Rules, rotation
from tests.measure.bench import figure

SHAPES = ((256, 512), (4096, 512))
MORE_US = (0, 5, 10, 15, 20, 30, 60)
MARGINS_US = (0.0, 8.0, clocks.MARGIN_US)
BUDGET_MS, REPEATS = 72, 3


def softmax(us: float) -> Callable[..., torch.Tensor]:
    def call(x: torch.Tensor) -> torch.Tensor:
        end = time.perf_counter_ns() + us * 1000
        while time.perf_counter_ns() < end:
            pass
        return torch.softmax(x, -1)

    return call


def with_events(before: bool, after: bool) -> Callable[..., torch.Tensor]:
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)

    def call(x: torch.Tensor) -> torch.Tensor:
        if before:
            begin.record()
        y = torch.softmax(x, -1)
        if after:
            end.record()
        return y

    return call


def gain(
    gpu: Gpu,
    masters: list[dict[str, Any]],
    baseline: Callable[..., torch.Tensor],
    solution: Callable[..., torch.Tensor],
) -> float:
    found = []
    for _ in range(REPEATS):
        clock = clocks.DeviceClock(gpu, gpu.flush("cold"), gpu.recorder)
        bench = Bench(clock, rotation(gpu.device, masters, Rules(), 2), BUDGET_MS, lambda: None)
        timing = bench.run({"baseline": baseline, "solution": solution})
        estimate = timing.estimate("baseline", "solution")
        assert estimate is not None
        found.append(math.exp(estimate.centre))
    return statistics.median(found)


def main() -> None:
    gpu = Gpu("cuda:0")
    gpu.warm()
    for shape in SHAPES:
        masters = [{"x": torch.randn(shape, device=gpu.device)} for _ in range(2)]
        for margin in MARGINS_US:
            clocks.MARGIN_US = margin
            gains = {us: gain(gpu, masters, softmax(0), softmax(us)) for us in MORE_US}
            worst = max(gains, key=lambda us: abs(gains[us] - 1))
            spelled = ", ".join(f"+{us} us {value:.3f}x" for us, value in gains.items())
            figure(f"{shape[0]}x{shape[1]}, margin {margin:.0f} us", f"{gains[worst]:.3f}x", spelled)
        none, first = with_events(False, False), with_events(True, False)
        pairs = {"before": (none, first), "after": (none, with_events(False, True))}
        pairs |= {"both": (none, with_events(True, True)), "both, baseline before": (first, with_events(True, True))}
        for name, (baseline, solution) in pairs.items():
            figure(f"{shape[0]}x{shape[1]}, events {name}", f"{gain(gpu, masters, baseline, solution):.3f}x", "")


if __name__ == "__main__":
    main()
