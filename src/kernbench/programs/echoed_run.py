"""Runs a program under the launcher and passes on what it prints: however this ends, nothing of it is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from harness.shared.errors import UserError
from kernbench.programs.searched_log import SIGNALS, Log
from kernbench.worker.launched import Launched

POLL_S = 0.25


class FellBackError(UserError):
    """The program runs other code than its own: nothing that was recorded of it counts."""

    exit_code = 1


async def run(
    command: Sequence[str],
    variables: Mapping[str, str],
    echo: Callable[[bytes], None],
    is_enough: Callable[[], bool] = lambda: False,
) -> int | None:
    """The exit code; None if it was stopped, because it had done enough."""
    try:
        program = await Launched.start(command, dict(variables))
    except OSError as problem:
        raise UserError(f"cannot start {command[0]}: {problem.strerror or problem}") from None
    log = Log(SIGNALS)
    reading = asyncio.create_task(_pass_on(program, log, echo))
    exited = asyncio.create_task(program.exited.wait())
    try:
        while not (program.exited.is_set() or log.forbidden or is_enough()):
            await asyncio.wait([exited], timeout=POLL_S)
        if program.exited.is_set():
            await asyncio.wait([reading], timeout=POLL_S)
            log.end()
        if log.forbidden:
            raise FellBackError(f"the command fell back to diffusers: {log.forbidden}; pin its own backend")
        return program.returncode
    finally:
        reading.cancel()
        exited.cancel()
        await program.close()


async def _pass_on(program: Launched, log: Log, echo: Callable[[bytes], None]) -> None:
    while chunk := await program.output.read(1 << 16):
        echo(chunk)
        log.feed(chunk)
