"""Memory that the workbench holds over a thousand runs of the fake harness, each painted, as Python counts it."""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from bench import figure
from pseudo import FAKE_HARNESS, ROOT, write_task

sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from harness.shared import taskfile  # noqa: E402
from kernbench.engine.jobs import Options  # noqa: E402
from kernbench.engine.session import Session  # noqa: E402
from kernbench.events import Event, RunFinished  # noqa: E402
from kernbench.tui.app import Workbench  # noqa: E402
from kernbench.tui.panes.output import MOST_LINES  # noqa: E402

ROWS, RUNS, STEP = 8, 1000, 250
SETTLED = 500
"""Runs after which what has a fixed size, such as Textual's caches, is full."""


def held_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def main(folder: Path) -> None:
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=Path(FAKE_HARNESS), floors=False))
    app = Workbench(session)
    finished = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, RunFinished):
            finished.set()

    session.listen(hear)
    held: dict[int, int] = {}
    started = time.perf_counter()
    tracemalloc.start()
    async with app.run_test(size=(160, 48)) as pilot:
        for line in range(MOST_LINES):  # the output pane is full from the start
            app.main.output.add(f"-- 21:29:58 key, source {line:08x}")
        for run in range(RUNS + 1):
            await asyncio.wait_for(finished.wait(), 20)
            finished.clear()
            await pilot.pause(0)
            if run % STEP == 0:
                held[run] = held_bytes()
                figure(f"held after {run} runs", f"{held[run] / 1e6:.2f} MB")
            if run < RUNS:
                session.rerun()
        per_run = (held[RUNS] - held[SETTLED]) / (RUNS - SETTLED)
        note = f"{time.perf_counter() - started:.0f} s for all"
        figure(f"growth a run, after the first {SETTLED}", f"{per_run:.0f} B", note)


with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as place:
    asyncio.run(main(write_task(Path(place, "toy"), ROWS)))
