"""Memory of the workbench over a thousand runs of the fake harness, each painted."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

from bench import figure
from pseudo import FAKE_HARNESS, ROOT, write_task

sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from harness import taskfile  # noqa: E402
from kernbench.events import Event, RunFinished  # noqa: E402
from kernbench.jobs import Options  # noqa: E402
from kernbench.session import Session  # noqa: E402
from kernbench.tui.app import Workbench  # noqa: E402

RUNS, STEP = 1000, 250


def resident_mb() -> float:
    gc.collect()
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def size(thing: object, seen: set[int]) -> int:
    """Bytes of a thing and all it holds; what was seen before is shared, and counted once."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    parts = [*thing, *thing.values()] if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
    return sys.getsizeof(thing) + sum(size(part, seen) for part in [*parts, getattr(thing, "__dict__", None)])


async def main(folder: Path) -> None:
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=Path(FAKE_HARNESS), floors=False))
    app = Workbench(session)
    finished = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, RunFinished):
            finished.set()

    session.listen(hear)
    figures: list[tuple[int, float]] = []
    started = time.perf_counter()
    async with app.run_test(size=(160, 48)) as pilot:
        for run in range(RUNS + 1):
            await asyncio.wait_for(finished.wait(), 20)
            finished.clear()
            await pilot.pause(0)
            if run % STEP == 0:
                figures.append((run, resident_mb()))
            if run < RUNS:
                session.rerun()
        for run, resident in figures:
            figure(f"resident after {run} runs", f"{resident:.1f} MB")
        (_, second), (_, last) = figures[1], figures[-1]
        per_run = (last - second) * 1024 / (RUNS - STEP)
        note = f"{time.perf_counter() - started:.0f} s for all"
        figure("growth a run, after the first 250", f"{per_run:.1f} kB", note)
        kept = size(session.journal.summaries, set()) / len(session.journal.summaries) / 1024
        figure("of it the record of a run that the log keeps", f"{kept:.1f} kB", "the rest fills caches of fixed size")


with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as place:
    asyncio.run(main(write_task(Path(place, "toy"), 20)))
