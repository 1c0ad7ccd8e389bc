"""Runs a program under the launcher and passes on what it prints: however this ends, nothing of it is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from harness.shared.errors import UserError
from kernbench.worker.launched import Launched

POLL_S = 0.25


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
    reading = asyncio.create_task(_pass_on(program, echo))
    exited = asyncio.create_task(program.exited.wait())
    try:
        while not program.exited.is_set():
            if is_enough():
                return None
            await asyncio.wait([exited], timeout=POLL_S)
        await asyncio.wait([reading], timeout=POLL_S)
        return program.returncode
    finally:
        reading.cancel()
        exited.cancel()
        await program.close()


async def _pass_on(program: Launched, echo: Callable[[bytes], None]) -> None:
    while chunk := await program.output.read(1 << 16):
        echo(chunk)
