"""The tool `sweep`: values of constants in the solution, screened, the best of them timed in full.

Every full timing and the winner's own run count as a run. When the minutes are spent, the sweep is stopped and its
answer says how far it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench import render
from kernbench.mcp_server.answers import SweepAnswer, SweptVariant, rounded, speed
from kernbench.mcp_server.desk import Desk, Tell
from kernbench.mcp_server.run_answer import Heard
from kernbench.sweep import halving
from kernbench.sweep.halving import Standing
from kernbench.sweep.sweep_job import Order, SweepJob, order_of
from kernbench.task import lookup

MOST_VARIANTS = 20
"""In an answer; the report in the task's state folder has all."""


async def sweep(
    desk: Desk, name: str, sets: Sequence[str], sample: int | None, write: bool, hypothesis: str, tell: Tell
) -> SweepAnswer:
    task, _state = desk.task(name)
    order = await asyncio.to_thread(_order, task, sets, sample)
    others = sum(not variant.is_now for variant in order.variants)
    most = min(others, halving.FINALISTS) + 1
    desk.budget.check_run(most)

    async def work(heard: Heard) -> SweepAnswer:
        desk.budget.check_run(most)  # other calls may have come first
        screenings = sum(screening.variants for screening in halving.rounds(others))
        heard.count, heard.doing = 1 + screenings + most, "starting the worker (importing torch)"
        options = replace(desk.options, device=None if task.device == "cpu" else desk.options.device)
        job = SweepJob(order, options, most_full=most)
        return await _run(desk, task, job, heard, write, hypothesis)

    return await desk.alone(Path(task.folder).name, work, tell)


def _order(task: Task, sets: Sequence[str], sample: int | None) -> Order:
    if not sets:
        raise UserError("nothing was run: `sets` needs a constant and its values, such as BLOCK=64,128,256")
    if sample is not None and sample < 1:
        raise UserError(f"nothing was run: a sample of {sample} variants is none")
    return order_of(task, lookup.state_dir(Path(task.folder)), sets, sample)


async def _run(desk: Desk, task: Task, job: SweepJob, heard: Heard, write: bool, hypothesis: str) -> SweepAnswer:
    def stage(text: str, item: Standing) -> None:
        heard.done, heard.doing = heard.done + 1, f"{text}: {item.variant.name}"
        heard.count = max(heard.count, heard.done)

    is_late = False
    try:
        async with asyncio.timeout(desk.budget.seconds_left):
            await job.run(stage)
            heard.done, heard.doing = heard.done + 1, "the winner's own run"
            await job.log(hypothesis.strip(), lambda event: None)
    except TimeoutError:
        is_late, job.is_over = True, False
    finally:
        for _run_made in range(job.sweep.full_runs):
            desk.budget.count_run()
        await job.close()
    wrote = await asyncio.to_thread(job.write) if write and not is_late else ""
    made = await asyncio.to_thread(_answer, task, job)
    if is_late:
        made = replace(made, sentence=f"{made.sentence}; the budget's minutes are spent")
    return replace(made, written=wrote, budget=desk.budget.left())


def _answer(task: Task, job: SweepJob) -> SweepAnswer:
    found, entry = job.report(), job.entry
    won = found.winner if found.is_over else None
    if won is None or won.ratio is None:
        verdict = "none" if found.is_over else "unclear"
    else:
        verdict = won.ratio.verdict
    return SweepAnswer(
        task=Path(task.folder).name,
        verdict=verdict,
        sentence=found.sentence,
        winner=won.variant.name if won is not None else "",
        over_now=speed(won.ratio) if won is not None and not won.variant.is_now else None,
        variants=tuple(map(_variant, found.standings[:MOST_VARIANTS])),
        variants_left_out=max(len(found.standings) - MOST_VARIANTS, 0),
        entry=entry.iteration if entry is not None else None,
        outcome=render.outcome(entry) if entry is not None else "",
        is_best=entry is not None and entry.holds,
        device=found.device,
        seconds=rounded(found.seconds, 2),
    )


def _variant(item: Standing) -> SweptVariant:
    if item.score is None or item.ratio is None:
        return SweptVariant(item.variant.name, item.word, problem=item.detail)
    if item.variant.is_now:
        return SweptVariant(item.variant.name, "same", us=rounded(item.us, 3), timed=item.word)
    ratio = item.ratio
    return SweptVariant(
        item.variant.name,
        ratio.verdict,
        rounded(ratio.speedup),
        rounded(ratio.low),
        rounded(ratio.high),
        rounded(item.us, 3),
        item.word,
        item.detail,
    )
