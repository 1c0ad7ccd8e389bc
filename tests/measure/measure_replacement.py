"""How soon a task with a compile baseline answers after a fatal save, after two, and when it is opened again.

python -m tests.measure.measure_replacement [TASK] [--once]     (on a GPU; default rms_norm)
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.faults.workbench import Workbench
from tests.measure.bench import figure

LIMITS = {"build": 240.0, "check": 240.0, "time": 240.0, "compile": 240.0}
FATAL = """
import torch, triton
import triton.language as tl
@triton.jit
def wild(p):
    tl.store(p + 0x7fffffffffff, 1.0)
wild[(1,)](torch.zeros(8, device="cuda"))
torch.cuda.synchronize()
"""


def answered(bench: Workbench, at: tuple[int, int, float], name: str) -> float:
    """Seconds to the first row with a verdict, to the last of them, and to the end; returns the second."""
    answer = bench.answer(at, 240)
    firsts: dict[str, float] = {}
    for moment, event in bench.lines[at[0] :]:
        if event["event"] == "case" and event.get("verdict") and event["run"] == answer.finished["run"]:
            firsts.setdefault(event["id"], moment - at[2])
    timed = sorted(firsts.values())
    words = f"{len(timed)} rows with a verdict, {sorted(answer.statuses)}, end after {answer.seconds:.2f} s"
    figure(name, f"{timed[0]:.2f} to {timed[-1]:.2f} s" if timed else "none", words)
    return timed[-1] if timed else float("nan")


def until_warm(bench: Workbench, began: float) -> float:
    def starts() -> Any:
        return next((moment for moment, event in bench.lines if event["event"] == "start"), None)

    figure("first run begins after", f"{bench.wait(starts, 240, 'start') - began:.2f} s")
    bench.wait(lambda: any("the worker was warm" in line for line in bench.said), 240, "warm worker")
    warm = time.monotonic() - began
    figure("the worker is warm after", f"{warm:.2f} s")
    return warm


def main() -> None:
    task = next((word for word in sys.argv[1:] if not word.startswith("--")), "rms_norm")
    root = Path(tempfile.mkdtemp(prefix="kernbench-replacement-"))
    folder = root / task
    shutil.copytree(ROOT / "kernels" / task, folder, ignore=shutil.ignore_patterns(".kernbench", "exports"))
    good = (folder / "solution.py").read_text()
    for opening in ("opening", "opening again")["--once" in sys.argv :]:
        began = time.monotonic()
        bench = Workbench(folder, "--baseline", "compile", deadlines=LIMITS)
        warm = until_warm(bench, began)
        last = answered(bench, (0, 0, began), opening)
        figure("every row has its verdict", f"{last - warm:.2f} s", "after the worker was warm")
        if opening == "opening":
            bench.settle(240, quiet=4)
            bench.close()
    bench.settle(240, quiet=4)
    answered(bench, bench.save(solution_py=good), "a save")
    for fatal in (1, 1, 2):
        bench.settle(240, quiet=4)
        for number in range(fatal):
            answer = bench.answer(bench.save(solution_py=good + FATAL + f"# {number}\n"), 120)
            print("   fatal save:", sorted(answer.statuses), f"{answer.seconds:.2f} s")
        answered(bench, bench.save(solution_py=good), f"a good save after {fatal} fatal")
    bench.close()
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
