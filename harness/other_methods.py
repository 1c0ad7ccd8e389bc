"""Other timing methods on the same rows, to compare kernbench's numbers with in `kernbench selfcheck`.

`main` times the solution twice in a row with triton.testing.do_bench and prints a JSON line per case. For Nsight
Compute, a request with `profiled` calls every case five times between profiler start and stop.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    request = json.loads(sys.stdin.readline())
    out = os.dup(1)
    os.dup2(2, 1)
    for case, function, inputs in _cases(request):
        if request.get("profiled"):
            _profiled(function, inputs)
            os.write(out, (json.dumps({"case": case}) + "\n").encode())
        else:
            ratios = [_timed(function, inputs) / _timed(function, inputs) for _ in range(request["repeats"])]
            os.write(out, (json.dumps({"case": case, "ratios": ratios}) + "\n").encode())


def _cases(request: dict[str, Any]) -> Any:
    import torch

    from harness.inputs.cache import RunCache
    from harness.inputs.reference import Draw
    from harness.shared.lines import decode
    from harness.shared.task import Task

    task, source, device = decode(Task, request["task"]), request["source"], request["device"]
    torch.cuda.set_device(device)
    cache = RunCache()
    function = cache.function("solution", "solution.py", source, task, "")
    reference = cache.reference(task, source, "")
    for case in task.timed:
        inputs = reference.make(case, Draw(0), device)
        function(**inputs)
        torch.cuda.synchronize()
        yield case.id, function, inputs


def _timed(function: Any, inputs: dict[str, Any]) -> float:
    import triton.testing

    return float(triton.testing.do_bench(lambda: function(**inputs)))


def _profiled(function: Any, inputs: dict[str, Any], calls: int = 5) -> None:
    import torch

    cuda: Any = torch.cuda
    runtime = cuda.cudart()
    runtime.cudaProfilerStart()
    for _ in range(calls):
        function(**inputs)
    torch.cuda.synchronize()
    runtime.cudaProfilerStop()
