"""Whether a side gains by being slow to launch: the same kernel against itself, one side with additional host time.

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


def gain(gpu: Gpu, masters: list[dict[str, Any]], us: float) -> float:
    found = []
    for _ in range(REPEATS):
        clock = clocks.DeviceClock(gpu, gpu.flush("cold"), gpu.recorder)
        bench = Bench(clock, rotation(gpu.device, masters, Rules(), 2), BUDGET_MS, lambda: None)
        timing = bench.run({"baseline": softmax(0), "solution": softmax(us)})
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
            gains = {us: gain(gpu, masters, us) for us in MORE_US}
            worst = max(gains, key=lambda us: abs(gains[us] - 1))
            spelled = ", ".join(f"+{us} us {value:.3f}x" for us, value in gains.items())
            figure(f"{shape[0]}x{shape[1]}, margin {margin:.0f} us", f"{gains[worst]:.3f}x", spelled)


if __name__ == "__main__":
    main()
