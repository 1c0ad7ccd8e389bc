"""One run of a command: its log is searched for signals as it is printed, and it ends by a deadline with everything it
started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernbench.programs.searched_log import Log
from kernbench.worker.launched import Launched

DRAIN_SECONDS = 1.0
"""For the last lines of a command that has exited."""


@dataclass(frozen=True)
class Ended:
    returncode: int | None = None
    """None if it was stopped, at its deadline or at a signal in its log."""
    last: str = ""
    """The last line that it printed."""
    forbidden: str = ""


async def run(words: Sequence[str], environment: Mapping[str, str], limit_s: float, signals: Sequence[str]) -> Ended:
    """Raises the OSError of a command that cannot be started."""
    program = await Launched.start(words, dict(environment))
    log = Log(signals)
    tasks = [asyncio.create_task(step) for step in (_read(program, log), program.exited.wait())]
    try:
        await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        code = program.returncode
        if code is not None:
            await asyncio.wait(tasks[:1], timeout=DRAIN_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
        await program.close()
    log.end()
    return Ended(code, log.last, log.forbidden)


async def _read(program: Launched, log: Log) -> None:
    """Until a signal, or the end: the output may end before the command does."""
    while not log.forbidden and (chunk := await program.output.read(1 << 16)):
        log.feed(chunk)
    if not log.forbidden:
        await program.exited.wait()
