"""What a bad save costs the next good one: good and bad saves in turn, and how soon a good one has its first row.

The spares get the time they need in between, as they do between a person's saves.
`python tests/measure/measure_crashes.py [TASK] [--rounds N] [--in-a-row N] [--case GLOB] [--baseline NAME]`
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import statistics
import time
from pathlib import Path

import bad_kernels
from bench import figure

from kernbench.engine.jobs import Options
from kernbench.events import Summary
from kernbench.selfcheck.task_copy import TaskCopy
from kernbench.worker.deadlines import Deadlines

parser = argparse.ArgumentParser()
parser.add_argument("task", nargs="?", default="softmax_host")
parser.add_argument("--rounds", type=int, default=20)
parser.add_argument("--in-a-row", type=int, default=1, help="bad saves before each good one")
parser.add_argument("--case")
parser.add_argument("--baseline")


async def measure(task: str, rounds: int, in_a_row: int, options: Options) -> None:
    seen: set[int] = set()
    served, first_rows, spares = 0, [], []
    async with TaskCopy(task, options, lambda _line: None) as shop:
        await shop.run()
        on_gpu = {} if shop.environment.device == "cpu" else bad_kernels.ON_A_GPU
        kinds = list({**on_gpu, **bad_kernels.ANYWHERE}.items())
        for number in range(rounds):
            kind, source = kinds[number % len(kinds)]
            spares.append(await spare(shop))
            seen.update(shop.session.supervisor.pids)
            for again in range(in_a_row):
                shop.write(source.replace("ENTRY", shop.session.task.entry) + f"\n_AGAIN = {again}\n")
                await shop.run()
            outcome = shop.outcome()
            shop.edit(number)
            good = await shop.run()
            seen.update(shop.session.supervisor.pids)
            served += isinstance(good, Summary) and good.right
            first_rows.append(shop.first() or math.nan)
            figure(f"first row after {kind}", f"{first_rows[-1]:.2f} s", outcome)
        lines = len(shop.session.logbook.journal.path.read_bytes().splitlines())
    figure("good saves served after a bad one", f"{served}/{rounds}")
    figure("first row after the save, median", f"{statistics.median(first_rows):.2f} s")
    figure("slowest first row after the save", f"{max(first_rows):.2f} s")
    figure("both spares take up to", f"{max(spares):.1f} s")
    figure("processes left behind", str(sum(map(alive, seen))))
    figure("lines in runs.jsonl", str(lines))


async def spare(shop: TaskCopy) -> float:
    """Until all spares are warm; how long that took."""
    began, spares = time.perf_counter(), shop.session.supervisor.spares
    while time.perf_counter() - began < 60 and (spares.may_start or not spares.all_are("warm")):
        await shop.session.supervisor.prepare_spare()
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False


given = parser.parse_args()
asked = Options(case=given.case, baseline=given.baseline, deadlines=Deadlines(build=8.0, check=6.0))
asyncio.run(measure(given.task, given.rounds, given.in_a_row, asked))
