"""Other timing methods on the same rows, to compare kernbench's numbers with in `kernbench selfcheck`.

`main` times the solution twice in a row with triton.testing.do_bench and prints a JSON line per case. For Nsight
Compute, a request with `profiled` calls every case five times between profiler start and stop.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    request = json.loads(sys.stdin.readline())
    out = os.dup(1)
    os.dup2(2, 1)
    for case, call in _cases(request):
        if request.get("profiled"):
            _profiled(call)
            os.write(out, (json.dumps({"case": case}) + "\n").encode())
        else:
            ratios = [_timed(call) / _timed(call) for _ in range(request["repeats"])]
            os.write(out, (json.dumps({"case": case, "ratios": ratios}) + "\n").encode())


def _cases(request: dict[str, Any]) -> Any:
    import torch

    from harness.inputs.cache import CaseInputs, RunCache
    from harness.inputs.calling import bound
    from harness.inputs.reference import Draw
    from harness.shared.lines import decode
    from harness.shared.task import Task

    task, source, device = decode(Task, request["task"]), request["source"], request["device"]
    torch.cuda.set_device(device)
    cache = RunCache()
    function = cache.function("solution", "solution.py", source, task, "")
    reference = cache.reference(task, source, "")
    for case in task.timed:
        material = CaseInputs(reference, case, Draw(0), device)
        call = bound(material.timed(function), material.inputs)
        call()
        torch.cuda.synchronize()
        yield case.id, call


def _timed(call: Callable[[], Any]) -> float:
    import triton.testing

    return float(triton.testing.do_bench(call))


def _profiled(call: Callable[[], Any], calls: int = 5) -> None:
    import torch

    cuda: Any = torch.cuda
    runtime = cuda.cudart()
    runtime.cudaProfilerStart()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    runtime.cudaProfilerStop()
