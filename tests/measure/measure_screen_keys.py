"""From a key to its paint: while a best is confirmed, at rest, and while a run is in progress and the kernel floods its
output; what a key and an idle screen cost."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench import figure
from pseudo import FAKE_HARNESS, Terminal, kernbench, write_task

ROWS, KEYS = 120, 200
CONFIRMED_S = 15.0
"""Until a confirmation has ended and its message is gone."""
FLOOD = 'TIME_US = 50.0\nDO = "flood"\n'
DOWN, UP = "\x1b[B", "\x1b[A"


def keys(terminal: Terminal, count: int) -> list[float]:
    """Milliseconds from each key to the row that it moves the cursor to."""
    taken, at = [], 0
    terminal.type("g")
    terminal.count(0.3)
    for index in range(count):
        step = 1 if (index // 10) % 2 == 0 else -1
        at += step
        typed = terminal.type(DOWN if step > 0 else UP)
        taken.append((terminal.until(f"> row {at:03}".encode(), 10) - typed) * 1000)
        time.sleep(0.013 * (1 + index % 5))
    return taken


def report(name: str, taken: list[float]) -> None:
    ninety_five = statistics.quantiles(taken, n=20)[-1]
    note = f"median {statistics.median(taken):.0f}, worst {max(taken):.0f}, {len(taken)} keys"
    figure(name, f"{ninety_five:.0f} ms", note)


with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as place:
    task = write_task(Path(place, "toy"), ROWS)
    terminal = Terminal(kernbench(str(task)), 120, 40, KERNBENCH_HARNESS=FAKE_HARNESS)
    terminal.until(b"quit")
    terminal.until(b"#1")
    terminal.count(3)
    report("key to paint while a best is confirmed, p95", keys(terminal, KEYS // 4))
    terminal.count(CONFIRMED_S)
    before = terminal.cpu_seconds()
    report("key to paint at rest, p95", keys(terminal, KEYS))
    figure("CPU of the program per key at rest", f"{(terminal.cpu_seconds() - before) / KEYS * 1000:.1f} ms")
    (task / "solution.py").write_text(f"def toy(): ...\n{FLOOD}")
    terminal.until(b"so far")
    began = time.perf_counter()
    report("key to paint under a flood, p95", keys(terminal, KEYS))
    spent = time.perf_counter() - began
    (task / "solution.py").write_text("def toy(): ...\nTIME_US = 49.0\n")
    terminal.until(b"#", 60)
    figure("the flooded run was in progress for", f"{spent:.1f} s", "all of the keys above")
    terminal.count(5)
    before, start = terminal.cpu_seconds(), time.perf_counter()
    sent = terminal.count(20)
    used = (terminal.cpu_seconds() - before) / (time.perf_counter() - start) * 100
    figure("idle CPU, telemetry on", f"{used:.1f} %", f"of a core over 20 s; {sent} bytes sent")
    terminal.leave()
