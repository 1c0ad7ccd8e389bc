"""From the editor's write to the first row: the waiting worker against the same harness started cold, in one run."""

from __future__ import annotations

import itertools
import signal
import statistics
import subprocess
import time
from pathlib import Path

from bench import KERNBENCH, figure, scratch_task, wait_for

SAVES = 7
COLD_STARTS = 3
_edit = itertools.count(1)


def save(task: Path) -> float:
    """Writes a source never seen before, so that it must be compiled; the moment after the write."""
    path = task / "solution.cpp"
    text = path.read_text().partition("\nextern const int edit_")[0]
    number = next(_edit)
    path.write_text(f"{text}\nextern const int edit_{number}_{time.time_ns()} = {number};\n")
    return time.perf_counter()


def warm(task: Path) -> list[float]:
    with subprocess.Popen([KERNBENCH, "watch", str(task), "--json"], stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        wait_for(watch.stdout, "finished")
        taken = []
        for _ in range(SAVES):
            time.sleep(1.0)
            saved = save(task)
            wait_for(watch.stdout, "case")
            taken.append(time.perf_counter() - saved)
            wait_for(watch.stdout, "finished")
        watch.send_signal(signal.SIGINT)
        return taken


def cold(task: Path) -> float:
    started = save(task)
    with subprocess.Popen([KERNBENCH, "run", str(task), "--json"], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        wait_for(run.stdout, "case")
        taken = time.perf_counter() - started
        wait_for(run.stdout, "finished")
        return taken


with scratch_task() as task:
    saves = warm(task)
with scratch_task() as task:
    starts = [cold(task) for _ in range(COLD_STARTS)]
warm_s, cold_s = statistics.median(saves), statistics.median(starts)
spread = f"{min(saves):.2f} to {max(saves):.2f} s over {SAVES} saves"
figure("softmax_host, save to first row, warm", f"{warm_s:.2f} s", spread)
figure("softmax_host, the same harness started cold", f"{cold_s:.2f} s", f"{min(starts):.2f} to {max(starts):.2f} s")
figure("warm is faster by", f"{cold_s / warm_s:.1f} x")
