"""A program with everything it starts: ended as a whole, also when kernbench itself is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernbench.worker.launched import Launched


@dataclass(frozen=True)
class Streams:
    """Descriptors, or paths to open."""

    given: int | Path = Path(os.devnull)
    said: int | Path = Path(os.devnull)
    """A path is appended to; errors go to `errors`, or to the same place."""
    errors: int | Path | None = None


class ProcessTree:
    def __init__(self, program: Launched) -> None:
        self._program = program
        self._exited = asyncio.create_task(program.exited.wait())

    @classmethod
    async def start(
        cls, words: Sequence[str], folder: Path, streams: Streams, environment: Mapping[str, str] | None = None
    ) -> ProcessTree:
        with contextlib.ExitStack() as stack:
            given = _opened(stack, streams.given, os.O_RDONLY)
            said = _opened(stack, streams.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            errors = said
            if streams.errors is not None:
                errors = _opened(stack, streams.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            return cls(await Launched.attached(words, (given, said, errors), environment or os.environ, folder))

    async def wait(self, seconds: float | None = None) -> int | None:
        """The program's exit code, negative for a signal; None if it still runs after so many seconds."""
        await asyncio.wait([self._exited], timeout=seconds)
        return self._program.returncode

    async def end(self) -> None:
        """The program and everything that it started."""
        await self._program.close()
        await self._exited


def _opened(stack: contextlib.ExitStack, stream: int | Path, flags: int) -> int:
    if isinstance(stream, int):
        return stream
    handle = os.open(stream, flags, 0o644)
    stack.callback(os.close, handle)
    return handle
