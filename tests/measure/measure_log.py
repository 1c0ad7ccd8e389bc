"""A log of 10,000 iterations of 15 cases: append, open, read back, export; prints seconds and sizes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from harness.shared import taskfile  # noqa: E402
from kernbench.events import CaseLanded, RunStarted, Summary  # noqa: E402
from kernbench.log.entries.entry_text import EntryText  # noqa: E402
from kernbench.log.logbook import Logbook  # noqa: E402
from kernbench.log.runs.journal import Journal  # noqa: E402
from tests.log.logs import ENVIRONMENT, make_log, make_task, rows_of, source_hash, summary_of  # noqa: E402
from tests.measure.bench import figure  # noqa: E402

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
        for row in [*rows, *rows]:
            book.journal.case(CaseLanded(started.run, row))
        book.journal.finish(book.enter(task, summary, {row.id: row for row in rows}), rows)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def pulled_seconds(folder: Path) -> float:
    """`kernbench log` of as many entries without a run on this machine."""
    task = make_task(folder, CASES)
    entries, series = [f"# Iterations of {folder.name}\n"], list[Summary]()
    for number in range(1, COUNT + 1):
        rows = rows_of(task, number, 1.2, {}, 1, 1)
        series.append(summary_of(task, number, rows, series[-3:]))
        entries.append(EntryText(task, series[-1], {row.id: row for row in rows})(number))
    (folder / "ITERATIONS.md").write_text("\n".join(entries))
    command = [sys.executable, "-m", "kernbench", "log", str(folder)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths}
    return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment))


def cold(path: Path) -> None:
    """Out of the page cache, where the system lets us."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kernbench-log-") as place:
        small, large = Path(place, "small"), Path(place, "large")
        make_log(small, 10, CASES, blocks=BLOCKS)
        make_log(large, COUNT, CASES, blocks=BLOCKS)
        runs = large / ".kernbench" / "runs.jsonl"
        note = f"{COUNT} iterations of {CASES} cases, {runs.stat().st_size / 1e6:.0f} MB"
        figure("runs.jsonl, first open, no index", f"{seconds(lambda: Journal(runs.parent), 1):.2f} s", note)
        figure("runs.jsonl, open", f"{seconds(lambda: Journal(runs.parent)):.2f} s")
        cold(runs)
        figure("runs.jsonl, open, not in the page cache", f"{seconds(lambda: Journal(runs.parent), 1):.2f} s")
        figure("append a run to a log of 10", f"{append_ms(small):.1f} ms")
        figure(f"append a run to a log of {COUNT}", f"{append_ms(large):.1f} ms")
        run = Journal(runs.parent).summaries[COUNT // 2].run
        journal = Journal(runs.parent)
        figure("rows of a run in the middle", f"{seconds(lambda: journal.cases_of(run)) * 1000:.0f} ms")
        figure("kernbench log, pulled without runs", f"{pulled_seconds(Path(place, 'pulled')):.2f} s")
        for kind in ("html", "csv"):
            target = Path(place, f"log.{kind}")
            command = [sys.executable, "-m", "kernbench", "export", str(large), "--format", kind, "-o", str(target)]
            paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
            began = time.perf_counter()
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths})
            taken = time.perf_counter() - began
            figure(f"export {kind}", f"{taken:.1f} s", f"{target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
