"""How much longer the first call on a set of inputs takes than the later ones, by the side that began the block.

Sources as they are, and rms_norm with `evict_last` on its loads, which is what harness/timing/first_touch.py looks for.

python -m tests.measure.measure_first_touch [TASK...]    (on a GPU)
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from harness.device.gpu import Gpu
from harness.inputs.cache import CaseInputs, RunCache
from harness.inputs.reference import Draw, copies
from harness.shared import taskfile
from harness.shared.run_request import RunRequest
from harness.shared.task import Case, Task
from harness.timing import first_touch
from harness.timing.case_timer import CaseTimer
from harness.timing.samples import Timing
from harness.timing.spot_checks import SpotChecks
from tests import ROOT

TASKS = ["rms_norm", "rotary_embedding", "ltx2_dual_modulate", "fused_add_rms_norm", "norm_infer"]
MOST_BYTES = 8 << 20
"""Of a row's inputs: larger ones do not survive the flush."""
HINT = 'other=0.0, eviction_policy="evict_last")'


def timings(folder: Path, cache: RunCache, device: Gpu | None) -> Iterator[tuple[Case, Timing]]:
    task = taskfile.load(folder)
    place = device.device if device else "cpu"
    reference = cache.reference(task, str(folder), "")
    solution = cache.function("solution", "solution.py", str(folder), task, "")
    timer = CaseTimer(_request(task, folder), device)
    for case in task.timed:
        masters = [CaseInputs(reference, case, Draw(seed), place) for seed in (1, 2)]
        if masters[0].nbytes > MOST_BYTES:
            continue
        sides = {"baseline": torch.compile(reference.entry), "solution": solution}
        called = {name: masters[0].timed(function) for name, function in sides.items()}
        for function in called.values():
            function(**copies(masters[0].inputs))
        yield case, timer.time(called, masters, lambda: None, SpotChecks(task.written)).samples


def _request(task: Task, folder: Path) -> RunRequest:
    return RunRequest(run="first-touch", task=task, source=str(folder), cases=tuple(case.id for case in task.timed))


def longer(timing: Timing, side: str, is_first: bool) -> str:
    """How many first calls of a side were slow, in blocks that it began or in the others, and the median difference."""
    ratios, more = [], []
    for calls, others in first_touch._blocks(timing, side):
        if len(calls) < 3 or not others or calls[0].names != calls[1].names:
            continue
        if (first_touch._began(calls) < first_touch._began(others)) == is_first:
            usual = statistics.median(call.busy_us for call in calls[1:])
            ratios.append(calls[0].busy_us / usual)
            more.append(calls[0].busy_us - usual)
    if not ratios:
        return "-"
    return f"{sum(ratio > first_touch.LONGER for ratio in ratios)}/{len(ratios)} {statistics.median(more):+.2f} us"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="*", default=TASKS)
    given = parser.parse_args()
    device = Gpu("cuda:0") if torch.cuda.is_available() else None
    print(f"{'':44}{'source: began, did not':>32}{'baseline: began, did not':>34}")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [(name, ROOT / "kernels" / name) for name in given.tasks]
        if "rms_norm" in given.tasks:
            folders.append(("rms_norm, evict_last", _with_hint(Path(scratch))))
        for name, folder in folders:
            for case, timing in timings(folder, RunCache(device), device):
                cells = [longer(timing, side, first) for side in ("solution", "baseline") for first in (True, False)]
                print(
                    f"{name + ' ' + case.label:<44}{cells[0]:>16}{cells[1]:>16}{cells[2]:>18}{cells[3]:>16}", flush=True
                )


def _with_hint(scratch: Path) -> Path:
    """rms_norm whose loads of x, and of the weight's last columns, stay in the L2."""
    for file in (ROOT / "kernels" / "rms_norm").iterdir():
        if file.is_file():
            text = file.read_text()
            (scratch / file.name).write_text(text.replace("other=0.0)", HINT) if file.name == "solution.py" else text)
    return scratch


if __name__ == "__main__":
    main()
