"""What one synchronised call of the small rows costs the host, beside an empty launch in the same minutes. Needs a GPU.

python tests/measure/measure_wall.py [TASK...] [--case GLOB]

The known wall times were taken so: inputs made once, one call and a synchronise, the same call again. They are another
machine's, where an empty launch through cuda.core took 14 us. The workbench's own wall pass tells more: to a call of 15
us, CUPTI having been used in the process added 2.8, CUDA graphs in it 1.1, and the flush of the L2 itself 0.4; on slow
hosts CUPTI added 4 to 8 to calls of 17 and 26 us.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.device.gpu import Gpu
from harness.inputs.cache import CaseInputs, RunCache
from harness.inputs.reference import Draw
from harness.shared import taskfile
from harness.shared.task import Case

KERNELS = Path(__file__).parents[2] / "kernels"
FAMILIES = (
    "fuse_scale_shift", "norm_infer", "norm_scale_shift", "norm_tanh_mul_add", "qknorm_rope", "rotary_embedding",
    "group_norm_silu",
)  # fmt: skip
DEVICE = "cuda:0"
SMALL_US = 5.0
"""Rows with a known device time below this live on the launch path."""
CALLS, RUNS, WARM_UP = 60, 4, 10
EMPTY = 'extern "C" __global__ void empty() {}'


def is_small(case: Case) -> bool:
    known = [(case.known or {}).get(name) for name in ("sglang_us", "published_us")]
    return case.headline and any(us is not None and us < SMALL_US for us in known)


def empty_launch() -> Callable[[], None]:
    """Through cuda.core's public interface, as a reader would write it."""
    from cuda.core import Device, LaunchConfig, Program, launch

    device = Device()
    device.set_current()
    kernel = Program(EMPTY, code_type="c++").compile("cubin").get_kernel("empty")
    config, stream = LaunchConfig(grid=1, block=32), device.default_stream
    return lambda: launch(stream, config, kernel)


def walls(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median host time of one call and a synchronise, in microseconds.

    They take turns in runs of a few: the same call again and again, as when the known times were taken, and yet a host
    that slows down does so for all.
    """
    now, synchronize = time.perf_counter_ns, torch.cuda.synchronize
    times: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(RUNS):
        for name, call in calls.items():
            for turn in range(WARM_UP + CALLS // RUNS):
                begin = now()
                result = call()
                synchronize()
                end = now()
                del result  # freed outside the span
                if turn >= WARM_UP:
                    times[name].append(end - begin)
    return {name: statistics.median(values) / 1000 for name, values in times.items()}


def told(task_name: str, glob: str | None, empty: Callable[[], None]) -> None:
    folder = KERNELS / task_name
    task, cache = taskfile.load(folder), RunCache(Gpu(DEVICE))
    chosen = [
        case
        for case in task.timed
        if (is_small(case) if glob is None else any(fnmatch.fnmatch(name, glob) for name in (case.id, case.label)))
    ]
    if not chosen:
        return
    print(f"\n{task_name:<28} {'ours':>7} {'empty':>7} {'beyond':>7}   known: {'sglang':>7} {'published':>9}")
    with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as build:
        reference = cache.reference(task, str(folder), build)
        solution = cache.function("solution", "solution.py", str(folder), task, build)
        for case in chosen:
            inputs = CaseInputs(reference, case, Draw(0), DEVICE).inputs
            took = walls({"ours": lambda inputs=inputs: solution(**inputs), "empty": empty})  # type: ignore[misc]
            known = [(case.known or {}).get(name) for name in ("sglang_wall_us", "published_wall_us")]
            sglang, published = ("-" if us is None else f"{us:.1f}" for us in known)
            beyond = took["ours"] - took["empty"]
            print(f"{case.label:<28} {took['ours']:7.1f} {took['empty']:7.1f} {beyond:7.1f}", end="")
            print(f"          {sglang:>7} {published:>9}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=FAMILIES, help="names of shipped tasks; all families where none")
    parser.add_argument("--case", help="rows by id or label, whatever their size")
    asked = parser.parse_args(words)
    if not torch.cuda.is_available():
        print("measure_wall needs an NVIDIA GPU, and torch sees none here.")
        return
    empty, tensor = empty_launch(), torch.empty(1, 126, 2048, dtype=torch.bfloat16, device=DEVICE)
    alone = walls({"empty": empty, "wait": lambda: None, "output": lambda: torch.empty_like(tensor)})
    print(f"one call and a synchronise, median of {CALLS}, us: an empty launch through cuda.core {alone['empty']:.1f},")
    print(f"the synchronise alone {alone['wait']:.1f}, torch.empty_like and no launch {alone['output']:.1f}")
    for task_name in asked.tasks:
        told(task_name, asked.case, empty)


if __name__ == "__main__":
    main()
