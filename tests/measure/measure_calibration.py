"""What this GPU does with plain torch operations, so that times of another box can be read beside ours. Needs a GPU.

python tests/measure/measure_calibration.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bench import figure

from harness import cuda
from harness.device.gpu import Gpu
from harness.timing import clocks
from harness.timing.blocks import Bench
from harness.timing.input_sets import Rules, rotation

EMPTY = 'extern "C" __global__ void empty() {}\n'
DEVICE = "cuda:0"


def device_us(gpu: Gpu, function: Callable[..., Any], **inputs: Any) -> float:
    """Device time of one call after a clean flush of the L2, by the workbench's own method."""
    clock = clocks.DeviceClock(gpu, gpu.flush("cold"), gpu.recorder)
    bench = Bench(clock, rotation(DEVICE, [inputs], Rules(), 1), 100.0, lambda: None)
    time_us = bench.run({"solution": function}).time_us("solution")
    assert time_us is not None
    return time_us


def wall_us(call: Callable[[], Any]) -> float:
    """Host time of one call and a synchronise."""
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def main() -> None:
    gpu = Gpu(DEVICE)
    gpu.warm()
    half = torch.randn(4096, 3072, device=DEVICE).bfloat16()
    rows = torch.randn(8640, 5120, device=DEVICE)
    for megabytes in (50, 100, 200, 839):
        wide = torch.randn(megabytes * 1_000_000 // 2 // 2, device=DEVICE).bfloat16()
        copied = device_us(gpu, lambda x: x.clone(), x=wide)
        figure(f"copy of {megabytes} MB, us", f"{copied:.1f}", f"{2 * wide.nbytes / copied / 1e6:.3f} TB/s")
    figure("torch x + x, 4096x3072 bf16, us", f"{device_us(gpu, lambda x: x + x, x=half):.1f}")
    normed = device_us(gpu, torch.nn.functional.layer_norm, input=rows, normalized_shape=(5120,))
    figure("torch layer_norm, 8640x5120 fp32, us", f"{normed:.1f}")
    figure("torch sum, 419 MB, us", f"{device_us(gpu, torch.sum, input=wide):.1f}")
    Path("/tmp/kernbench-calibration").mkdir(exist_ok=True)
    Path("/tmp/kernbench-calibration/empty.cu").write_text(EMPTY)
    scope: dict[str, Any] = {"__file__": "/tmp/kernbench-calibration/calling.py", "load": cuda.load}
    exec("library = load('empty.cu')", scope)  # load looks beside the file that calls it
    empty = scope["library"].empty[1, 32]
    figure("empty launch by harness.cuda and a synchronise, wall us", f"{wall_us(empty):.1f}")
    figure("the synchronise alone, wall us", f"{wall_us(lambda: None):.1f}")


if __name__ == "__main__":
    main()
