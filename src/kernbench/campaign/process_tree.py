"""A program with everything it starts: ended as a whole, also when kernbench itself is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernbench.worker import launched


@dataclass(frozen=True)
class Streams:
    """Descriptors, or paths to open."""

    given: int | Path = Path(os.devnull)
    said: int | Path = Path(os.devnull)
    """A path is appended to; errors go to `errors`, or to the same place."""
    errors: int | Path | None = None


class ProcessTree:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._launcher = process
        self._code = asyncio.create_task(self._ended())

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
            process = await asyncio.create_subprocess_exec(
                *launched.command((given, said, errors), words),
                stdin=asyncio.subprocess.PIPE,  # its end is the end of the tree
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=sorted({given, said, errors}),
                env=None if environment is None else dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        return cls(process)

    async def wait(self, seconds: float | None = None) -> int | None:
        """The program's exit code, negative for a signal; None if it still runs after so many seconds."""
        done, _running = await asyncio.wait([self._code], timeout=seconds)
        return self._code.result() if done else None

    async def end(self) -> int:
        lifeline = self._launcher.stdin
        assert lifeline is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            lifeline.write(b"k")
        try:
            return await asyncio.shield(self._code)
        finally:
            lifeline.close()

    async def _ended(self) -> int:
        assert self._launcher.stdout is not None
        code = 127  # it could not be started
        async for line in self._launcher.stdout:
            what, _space, number = line.decode().strip().partition(" ")
            code = int(number) if what == "exit" else code
        await self._launcher.wait()
        return code


def _opened(stack: contextlib.ExitStack, stream: int | Path, flags: int) -> int:
    if isinstance(stream, int):
        return stream
    handle = os.open(stream, flags, 0o644)
    stack.callback(os.close, handle)
    return handle
