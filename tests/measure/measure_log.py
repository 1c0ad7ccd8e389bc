"""A log of 10,000 iterations of 15 cases with its ITERATIONS.md: list, export, open, append, paint; prints seconds."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from harness.shared import taskfile  # noqa: E402
from kernbench.events import CaseLanded, RunStarted  # noqa: E402
from kernbench.log.logbook import Logbook  # noqa: E402
from kernbench.log.runs.journal import Journal  # noqa: E402
from tests.log.logs import (  # noqa: E402
    ENVIRONMENT,
    make_log,
    make_task,
    rows_of,
    source_hash,
    summary_of,
    write_entries,
)
from tests.measure.bench import figure  # noqa: E402
from tests.measure.pseudo import FAKE_HARNESS, Terminal, kernbench  # noqa: E402

COUNT = int(os.environ.get("KERNBENCH_LOG", "10000"))
CASES = 15
BLOCKS = 32


def seconds(action: Callable[[], object], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def append_ms(folder: Path, runs: int = 30) -> float:
    """Median of a whole run's writing: its start, its rows twice, its entry in ITERATIONS.md, its end."""
    task = taskfile.load(folder)
    book = Logbook(folder, folder / ".kernbench")
    taken = []
    for number in range(COUNT + 1, COUNT + 1 + runs):
        rows = rows_of(task, number, 1.0, {}, 1, BLOCKS)
        summary = summary_of(task, number, rows, book.journal.summaries[-3:])
        started = RunStarted(
            summary.run, source_hash(number), "save", tuple(row.id for row in rows), summary.at, "compile"
        )
        began = time.perf_counter()
        book.journal.start(started, task.name, ENVIRONMENT)
        for row in [*(replace(row, checked=1) for row in rows), *rows]:
            book.journal.case(CaseLanded(started.run, row))
        book.journal.finish(book.enter(task, summary, {row.id: row for row in rows}), rows)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def cold(path: Path) -> None:
    """Out of the page cache, where the system lets us."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def command_seconds(*words: str, times: int = 3) -> float:
    """Of a command in a process of its own, its start included; the least, as others use the machine too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(kernbench(*words), check=True, capture_output=True, env=environment)
        taken.append(time.perf_counter() - began)
    return min(taken)


def first_paint(folder: Path) -> float:
    """Median of five, after one that fills the caches."""

    def once() -> float:
        terminal = Terminal(kernbench(str(folder)), 120, 40, KERNBENCH_HARNESS=FAKE_HARNESS)
        painted = terminal.until(b"quit") - terminal.started
        terminal.leave()
        return painted

    once()
    return statistics.median(once() for _ in range(5))


OPEN = """
import sys, time
from pathlib import Path
from kernbench.log.runs.journal import Journal
began = time.perf_counter()
Journal(Path(sys.argv[1]))
print(time.perf_counter() - began)
"""


def open_seconds(state: Path, times: int = 3) -> float:
    """The least of several, each in a new process: this one holds the log it wrote, which slows the collector."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", OPEN, str(state)]
    return min(float(subprocess.check_output(command, env=environment)) for _ in range(times))


def open_and_append(small: Path, large: Path) -> None:
    runs = large / ".kernbench" / "runs.jsonl"
    note = f"{COUNT} iterations of {CASES} cases, {runs.stat().st_size / 1e6:.0f} MB"
    figure("runs.jsonl, open", f"{open_seconds(runs.parent):.2f} s", note)
    cold(runs)
    figure("runs.jsonl, open, not in the page cache", f"{open_seconds(runs.parent, 1):.2f} s")
    figure("append a run to a log of 10", f"{append_ms(small):.1f} ms")
    figure(f"append a run to a log of {COUNT}", f"{append_ms(large):.1f} ms")
    journal = Journal(runs.parent)
    run = journal.summaries[COUNT // 2].run
    figure("rows of a run in the middle", f"{seconds(lambda: journal.cases_of(run)) * 1000:.0f} ms")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kernbench-log-") as place:
        small, large, pulled, empty = (Path(place, name) for name in ("small", "large", "pulled", "empty"))
        make_log(small, 10, CASES, blocks=BLOCKS)
        write_entries(make_log(large, COUNT, CASES, blocks=BLOCKS))
        shutil.copytree(large, pulled, ignore=shutil.ignore_patterns(".kernbench"))
        make_task(empty, CASES)
        figure("kernbench log", f"{command_seconds('log', str(large)):.2f} s")
        figure("kernbench log, pulled without runs", f"{command_seconds('log', str(pulled)):.2f} s")
        for kind in ("html", "csv"):
            target = Path(place, f"log.{kind}")
            taken = command_seconds("export", str(large), "--format", kind, "-o", str(target), times=1)
            figure(f"export {kind}", f"{taken:.1f} s", f"{target.stat().st_size / 1e6:.1f} MB")
        open_and_append(small, large)
        figure("first paint of an empty log", f"{first_paint(empty):.2f} s")
        figure("first paint of the long log", f"{first_paint(large):.2f} s")


if __name__ == "__main__":
    main()
