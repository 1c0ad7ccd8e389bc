"""latency: time from a save to its rows, warm and cold."""

from __future__ import annotations

import asyncio
import statistics
import time

from harness.shared import format as fmt
from kernbench.engine.jobs import Options
from kernbench.selfcheck import Report, Tell
from kernbench.selfcheck.task_copy import TaskCopy


async def from_save_to_rows(task: str, options: Options, repeats: int, tell: Tell) -> Report:
    """Edits the kernel, so that it is compiled each time; then does the same from a cold start."""
    report = Report("latency")
    async with TaskCopy(task, options, tell) as shop:
        await shop.run()
        if not shop.rows():
            return Report("latency", notes=["nothing was timed: no latency to measure"])
        await shop.session.confirm()  # as between a user's saves: the edits are timed against a best, too
        await shop.run()  # the confirmation took a new worker
        await shop.session.supervisor.prepare_builder(lambda: False)
        warm = []
        for number in range(repeats):
            shop.edit(int(time.time()) % 100000 + number)
            await shop.run()
            if shop.first() is None:
                return Report("latency", notes=[f"an edited solution was not timed ({shop.outcome()})"])
            warm.append(_times("warm edit", shop))
    cold = []
    for number in range(2):
        async with TaskCopy(task, options, tell) as shop:
            shop.edit(int(time.time()) % 100000 + 500 + number)
            run = asyncio.create_task(shop.run())
            while shop.first() is None and not run.done():
                await asyncio.sleep(0.01)
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            if shop.first() is None:
                return Report("latency", rows=warm, notes=[f"a cold start was not timed ({shop.outcome()})"])
            cold.append({"what": "started cold", "first_row_s": shop.first()})  # only the first row was waited for
    report.rows = [*warm, *cold]
    first = [statistics.median(float(str(row["first_row_s"])) for row in group) for group in (warm, cold)]
    report.notes.append(
        f"first row {fmt.seconds(first[0])} warm, {fmt.seconds(first[1])} cold: {fmt.factor(first[1] / first[0])}"
    )
    return report


def _times(name: str, shop: TaskCopy) -> dict[str, object]:
    return {
        "what": name,
        "first_row_s": shop.first(),
        "all_timed_s": shop.last(1),
        "all_checked_s": shop.last(2),
        "rows": len(shop.rows()),
    }
