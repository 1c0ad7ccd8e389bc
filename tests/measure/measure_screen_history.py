"""First paint of a task with a long past: 10,000 iterations in its log and 200 rows in its table."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from bench import figure
from pseudo import FAKE_HARNESS, ROOT, Terminal, kernbench, write_task

sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from harness.shared import taskfile  # noqa: E402
from harness.shared.results import CaseResult  # noqa: E402
from harness.shared.run_request import Environment  # noqa: E402
from kernbench.events import CaseLanded, RunStarted, Summary  # noqa: E402
from kernbench.log.runs.journal import Journal  # noqa: E402

ITERATIONS, ROWS, WITH_ROWS = 10_000, 200, 100


def write_past(folder: Path) -> int:
    """The log as the program itself would have written it; the last runs with all their rows."""
    task = taskfile.load(folder)
    journal = Journal(folder / ".kernbench")
    environment = Environment(device="cpu", device_name="Fake 9000", condition="no clock", torch="none", threads=1)
    results = [CaseResult(id=case.id, status="ok", clock="wall", baseline_us=100.0, solution_us=50.0, speedup=2.0,
                          low=1.9, high=2.1, verdict="faster", checked=2, blocks=8) for case in task.cases]  # fmt: skip
    ids = tuple(case.id for case in task.cases)
    entries = []
    for number in range(1, ITERATIONS + 1):
        run, at = f"run-{number:06}", "2026-11-14T21:03:00+00:00"
        source = f"{number:064x}"
        if number > ITERATIONS - WITH_ROWS:
            start = RunStarted(run, source, "save", ids, at, "eager", task_hash=task.hash)
            journal.start(start, task.name, environment)
            for result in results:
                journal.case(CaseLanded(run, result))
        summary = Summary(run, source, at, True, 2.0, 1.9, 2.1, "faster", best=number == 1, iteration=number,
                          counts={"ok": ROWS, "faster": ROWS, "headline": ROWS}, hypothesis=f"try {number}",
                          baseline="eager", task_hash=task.hash, seconds=1.0, environment=environment)  # fmt: skip
        journal.finish(summary, results)
        entries.append(f"## {number} · try {number} · 2.00x · same\n- when 2026-11-14 · source {source[:8]}\n\n")
    (folder / "ITERATIONS.md").write_text("# Iterations of toy\n\n" + "".join(entries))
    return os.path.getsize(journal.path)


def open_once(task: Path, columns: int, rows: int) -> tuple[float, float]:
    """Seconds to the first paint, and to the paint that has the best geomean of the past in it."""
    terminal = Terminal(kernbench(str(task)), columns, rows, KERNBENCH_HARNESS=FAKE_HARNESS)
    painted = terminal.until(b"quit") - terminal.started
    full = terminal.until(b"2.00x") - terminal.started
    terminal.count(1)
    terminal.leave()
    return painted, full


with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as place:
    task = write_task(Path(place, "toy"), ROWS)
    size = write_past(task)
    note = f"{ITERATIONS:,} iterations, {ROWS} rows, runs.jsonl {size / 1e6:.0f} MB"
    for columns, rows in ((80, 24), (200, 60)):
        open_once(task, columns, rows)
        openings = [open_once(task, columns, rows) for _ in range(5)]
        taken = [first for first, _ in openings]
        middle = statistics.median(taken)
        name = f"first paint with a long past at {columns}x{rows}"
        figure(name, f"{middle:.2f} s", f"worst {max(taken):.2f} s; {note}")
        full = statistics.median(paint for _, paint in openings)
        figure("and the past in it", f"{full:.2f} s")
        note = "median of 5"
