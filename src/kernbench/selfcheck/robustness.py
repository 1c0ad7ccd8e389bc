"""latency, crash and memory: how soon a save is answered, what a bad one costs, what a day of edits leaves behind."""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

from kernbench.engine.jobs import Options
from kernbench.events import Summary
from kernbench.selfcheck import Report, Tell, bad_kernels
from kernbench.selfcheck.task_copy import TaskCopy
from kernbench.worker.supervisor import Deadlines


async def latency(task: str, options: Options, repeats: int, tell: Tell) -> Report:
    """Edits of the kernel itself, so that it is compiled again each time; then the same started cold."""
    report = Report("latency")
    async with TaskCopy(task, options, tell) as shop:
        await shop.run()
        if not shop.rows():
            return Report("latency", notes=["nothing was timed here: no latency to measure"])
        await shop.session.supervisor.prepare_builder(lambda: False)  # as it is between a person's saves
        warm = []
        for number in range(repeats):
            shop.edit(int(time.time()) % 100000 + number)
            await shop.run()
            if shop.first() is None:
                return Report(
                    "latency", notes=[f"an edit of the solution was not timed ({_outcome(shop)}): no latency"]
                )
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
                return Report("latency", rows=warm, notes=[f"a cold start was not timed ({_outcome(shop)})"])
            cold.append({"what": "started cold", "first_row_s": shop.first()})  # it was not waited for more
    report.rows = [*warm, *cold]
    first = [statistics.median(float(str(row["first_row_s"])) for row in group) for group in (warm, cold)]
    report.notes.append(f"first row {first[0]:.2f} s warm, {first[1]:.2f} s cold: {first[1] / first[0]:.1f} times")
    return report


def _outcome(shop: TaskCopy) -> str:
    if shop.failure is not None:
        return f"{shop.failure.status}: {shop.failure.message}"
    bad = next((row for _at, row in shop.landed if row.failed), None)
    return f"{bad.status}: {bad.detail}" if bad is not None else "nothing"


def _times(name: str, shop: TaskCopy) -> dict[str, object]:
    return {
        "what": name,
        "first_row_s": shop.first(),
        "all_timed_s": shop.last(1),
        "all_checked_s": shop.last(2),
        "rows": len(shop.rows()),
    }


async def crashes(task: str, options: Options, rounds: int, tell: Tell) -> Report:
    """Good and bad saves in turn; the spare gets the time it needs in between, as it does between a person's saves."""
    report = Report("crash")
    deadlines = Deadlines(build=8.0, check=6.0)
    async with TaskCopy(task, replace(options, deadlines=deadlines), tell) as shop:
        await shop.run()
        on_gpu = {} if shop.environment.device == "cpu" else bad_kernels.ON_A_GPU
        kinds = list({**on_gpu, **bad_kernels.ANYWHERE}.items())
        seen: set[int] = set()
        for number in range(rounds):
            kind, source = kinds[number % len(kinds)]
            waited = await _spare(shop)
            seen.update(shop.session.supervisor.pids)
            shop.write(source.replace("ENTRY", shop.session.task.entry))
            await shop.run()
            said = _outcome(shop)
            shop.edit(number)
            outcome = await shop.run()
            seen.update(shop.session.supervisor.pids)
            good = isinstance(outcome, Summary) and outcome.right
            report.rows.append(
                {
                    "bad_save": kind,
                    "said": said,
                    "next_first_row_s": shop.first(),
                    "served": good,
                    "spare_s": waited,
                }
            )
        runs = len(shop.session.logbook.journal.path.read_bytes().splitlines())
    left = [pid for pid in seen if _alive(pid)]
    worst = max(
        (float(str(row["next_first_row_s"])) for row in report.rows if row["next_first_row_s"]), default=math.nan
    )
    served = sum(bool(row["served"]) for row in report.rows)
    spare = max(float(str(row["spare_s"])) for row in report.rows)
    report.notes.append(
        f"{served}/{rounds} good saves served after a bad one, the slowest first row {worst:.2f} s after the save; "
        f"a spare takes up to {spare:.1f} s; {len(left)} processes left behind; {runs} lines in runs.jsonl"
    )
    return report


async def _spare(shop: TaskCopy) -> float:
    """Until the spare is warm; how long that took."""
    began = time.perf_counter()
    await shop.session.supervisor.prepare_spare()
    while not shop.session.supervisor.spare_warm and time.perf_counter() - began < 60:
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False


async def memory(task: str, options: Options, edits: int, tell: Tell) -> Report:
    """Resident memory of the worker over many edits of one case."""
    report = Report("memory")
    async with TaskCopy(task, options, tell) as shop:
        smallest = min(shop.session.task.timed, key=lambda case: len(str(case.axes)), default=None)
        shop.session.options = replace(shop.session.options, case=smallest.id if smallest else None)
        for number in range(edits + 1):
            shop.edit(number)
            await shop.run()
            if number in (5, edits // 2, edits):
                pid = shop.session.supervisor.pids[0]
                report.rows.append({"edits": number, "resident_mb": _resident(pid) / 1e6, "gpu_mb": _gpu_memory(pid)})
    grown = float(str(report.rows[-1]["resident_mb"])) - float(str(report.rows[0]["resident_mb"]))
    report.notes.append(f"{grown:+.0f} MB of resident memory from edit 5 to edit {edits}")
    return report


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _gpu_memory(pid: int) -> float | None:
    """Megabytes the process holds on GPUs, where NVML says."""
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        found = [item for device in devices for item in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]
    except Exception:  # no driver, no NVML, no permission: then it is not known
        return None
    used = [item.usedGpuMemory for item in found if item.pid == pid and item.usedGpuMemory]
    return sum(used) / 1e6 if used else None
