"""What activity records cost a timed call: straight from CUPTI and through torch's profiler. Needs a GPU.

python tests/measure/measure_records.py [ROUNDS]

A copy of 25 MB against itself, as the workbench times it. The profiler comes last: it changes CUPTI's clock for good.
"""

from __future__ import annotations

import sys
import time

import torch

from harness.device.activity import Record, Recorder
from harness.device.gpu import Gpu, _through_torch
from harness.timing import clocks

CALLS = 200
"""Of a batch, about as many as of a row."""


class Watched:
    """A recorder that remembers how long it took."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.forget()

    def forget(self) -> None:
        self.spent = {"start": 0.0, "stop": 0.0}

    def start(self, host_too: bool) -> None:
        began = time.perf_counter()
        self._recorder.start(host_too=False)
        self.spent["start"] += time.perf_counter() - began

    def stop(self) -> list[Record]:
        began = time.perf_counter()
        found = self._recorder.stop()
        self.spent["stop"] += time.perf_counter() - began
        return found


def told(name: str, gpu: Gpu, recorder: Recorder, rounds: int) -> None:
    x = torch.randn(12_500_000 // 2, dtype=torch.float16, device="cuda")
    y, watched = torch.empty_like(x), Watched(recorder)
    clock = clocks.DeviceClock(gpu, gpu.flush("cold"), watched)
    calls = [clocks.Call(None, lambda: y.copy_(x), "solution")] * CALLS
    clock.measure(calls)
    watched.forget()
    times: list[float] = []
    began = time.perf_counter()
    for _ in range(rounds):
        times += [measured.us for measured in clock.measure(calls)]
    whole = 1e6 * (time.perf_counter() - began) / len(times)
    start, stop = (1e6 * watched.spent[word] / len(times) for word in ("start", "stop"))
    middle = sorted(times)[len(times) // 2]
    print(f"{name:<26} {whole:8.1f} {start:8.1f} {stop:8.1f} {middle:12.2f}")


def main() -> None:
    if not torch.cuda.is_available():
        print("measure_records needs an NVIDIA GPU, and torch sees none here.")
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    gpu = Gpu("cuda:0")
    print(f"{'us a call':<26} {'in all':>8} {'start':>8} {'stop':>8} {'on the device':>12}")
    told(type(gpu.recorder).__name__, gpu, gpu.recorder, rounds)
    told("through torch's profiler", gpu, _through_torch(gpu.flush("cold"), "to be compared"), rounds)


if __name__ == "__main__":
    main()
