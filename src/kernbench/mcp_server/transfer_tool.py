"""The tool `transfer`: one step of a model with a task's kernels in it. It counts as a run."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from harness.shared.codes import FEWEST_ROUNDS, SIDES
from harness.shared.errors import UserError
from kernbench.mcp_server.answers import TransferAnswer, rounded, speed
from kernbench.mcp_server.desk import Desk, Tell
from kernbench.mcp_server.run_answer import Heard
from kernbench.task.lookup import ProjectError
from kernbench.transfer import model_file
from kernbench.transfer.model_row import ModelRow
from kernbench.transfer.model_run import ModelRun, TransferOptions
from kernbench.transfer.model_sources import What


async def transfer(
    desk: Desk, model: str, name: str, source: What | None, sides: tuple[str, ...], rounds: int | None, tell: Tell
) -> TransferAnswer:
    folder, task = _model(model), desk.tasks.folder(name) if name else None
    if unknown := [side for side in sides if side not in SIDES]:
        raise UserError(f"nothing was run: {unknown[0]!r} is not one of {', '.join(SIDES)}")
    if rounds is not None and rounds < FEWEST_ROUNDS:
        raise UserError(f"nothing was run: {rounds} rounds are too few; {FEWEST_ROUNDS} is the least")
    words = ["kernbench", "transfer", model, *(["--task", task.name] if task is not None else [])]
    options = TransferOptions(
        tasks=(str(task),) if task is not None else (),
        what=source,
        sides=sides,
        rounds=rounds,
        device=desk.options.device,
        python=desk.options.python,
        command=shlex.join(words),
    )
    desk.budget.begin()
    desk.budget.check_run()

    async def work(heard: Heard) -> TransferAnswer:
        desk.budget.check_run()  # other calls may have come first

        def say(text: str) -> None:
            heard.done, heard.doing = heard.done + 1, text
            heard.count = heard.done + 1  # how many there will be is not known

        desk.budget.count_run()
        try:
            async with asyncio.timeout(desk.budget.seconds_left):
                (row,) = await ModelRun(folder, options, say).rows()
        except TimeoutError:
            raise UserError(f"{model} was stopped and nothing recorded: the budget's minutes are spent") from None
        return _answer(row, desk)

    return await desk.alone(folder.name, work, tell)


def _model(name: str) -> Path:
    """By its name only: a path could lead to any program."""
    known = model_file.models()
    if name not in known:
        raise ProjectError(f"no model {name!r} here; available: {', '.join(known) or 'none'}")
    return known[name].resolve()


def _answer(row: ModelRow, desk: Desk) -> TransferAnswer:
    return TransferAnswer(
        model=row.model,
        config=row.config,
        word=row.word,
        kept=row.kept,
        why=row.why or row.said.removeprefix(row.word).strip(" ()"),
        tasks=tuple(f"{patch.task}: {patch.what}" for patch in row.sources),
        side=row.side,
        over=row.over,
        step=speed(row.ratio),
        expected=rounded(row.expected),
        resolvable=rounded(row.resolvable),
        is_exact=row.exact,
        notes=row.notes,
        device=row.environment.device_name,
        budget=desk.budget.left(),
    )
