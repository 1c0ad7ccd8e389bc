"""A log of 10,000 iterations of 15 cases with its ITERATIONS.md: list, export, open, append, paint; prints seconds.

Then two runs.jsonl of 500 MB without ITERATIONS.md, with the limits that they must keep, in seconds and memory:

    python tests/measure/measure_log.py long
"""

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
    stretch,
    summary_of,
    write_entries,
)
from tests.measure.bench import figure  # noqa: E402
from tests.measure.pseudo import FAKE_HARNESS, Terminal, kernbench  # noqa: E402

COUNT = int(os.environ.get("KERNBENCH_LOG", "10000"))
CASES = 15
BLOCKS = 32
LONG = ((10_000, 15, 43, 3.0, 250.0), (66_410, 3, 8, 12.0, 250.0))
"""Runs, cases and blocks of a log of 500 MB, and the most seconds and MB that its list may take."""


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
        book.finish(task, lambda run=summary: run, {row.id: row for row in rows}, 1.0)
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


def listed(folder: Path) -> tuple[float, float, float]:
    """Seconds, seconds of the processor and peak memory in MB of `kernbench log`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    began = time.perf_counter()
    with subprocess.Popen(kernbench("log", str(folder)), stdout=subprocess.DEVNULL, env=environment) as process:
        _pid, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def long_lists() -> None:
    for count, cases, blocks, most_seconds, most_memory in LONG:
        with tempfile.TemporaryDirectory(prefix="kernbench-log-") as place:
            folder = Path(place, "long")
            stretch(make_log(folder, 50, cases, blocks=blocks), count)
            size = (folder / ".kernbench" / "runs.jsonl").stat().st_size / 1e6
            took, busy, memory = min(listed(folder) for _ in range(3))
        is_kept = "kept" if took <= most_seconds and memory <= most_memory else "NOT KEPT"
        limits = f"of {most_seconds:.0f} s and {most_memory:.0f} MB: {is_kept}"
        note = f"{size:.0f} MB on disk; {busy:.1f} s of the processor; {limits}"
        figure(f"kernbench log of {count} runs", f"{took:.1f} s, {memory:.0f} MB", note)


def main() -> None:
    if sys.argv[1:] == ["long"]:
        long_lists()
        return
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
    long_lists()


if __name__ == "__main__":
    main()
