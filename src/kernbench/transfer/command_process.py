"""One run of a command: its log is searched for signals as it is printed, and it ends by a deadline with everything it
started.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernbench.worker.launched import Launched
from kernbench.worker.log_limit import ESCAPES, LONGEST_LINE

DRAIN_SECONDS = 1.0
"""For the last lines of a command that has exited."""
_END_OF_LINE = re.compile(rb"[\r\n]+")


@dataclass(frozen=True)
class Ended:
    returncode: int | None = None
    """None if it was stopped, at its deadline or at a signal in its log."""
    last: str = ""
    """The last line that it printed."""
    forbidden: str = ""


class Log:
    """A command's output, line by line; only the last line is kept."""

    def __init__(self, signals: Sequence[str]) -> None:
        self._signals, self._rest, self._number = signals, b"", 0
        self.last = self.forbidden = ""

    def feed(self, chunk: bytes) -> None:
        *whole, self._rest = _END_OF_LINE.split(self._rest + chunk)
        if len(self._rest) > 1 << 16:  # no line of a log
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            self._take(ESCAPES.sub("", line.decode(errors="replace")))

    def end(self) -> None:
        self.feed(b"\n")

    def _take(self, line: str) -> None:
        self._number += 1
        self.last = line.strip()[:LONGEST_LINE] or self.last
        self.forbidden = self.forbidden or forbidden([line[: 1 << 12]], self._signals, self._number)


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


def forbidden(log: Sequence[str], signals: Sequence[str], first: int = 1) -> str:
    """The line of the log that shows that the model did not run as it should; empty if there is none."""
    for number, line in enumerate(log, first):
        if any(signal.lower() in line.lower() for signal in signals):
            return f'"{line.strip()}" (line {number} of its log)'
    return ""
