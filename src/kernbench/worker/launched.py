"""A program started through the launcher: its pid, its pipes and its end.

The end is learned from the launcher, never from the program's pipes: a process that the program started may hold those
open for as long as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernbench.worker import launcher

KILL_SECONDS = launcher.SECONDS + 1.0
LOG_LIMIT = 512 * 1024
"""Bytes of output held back for a reader that is slower than a flood."""


def command(streams: Sequence[int], words: Sequence[str]) -> list[str]:
    """The command line that starts `words` under a launcher with these three descriptors."""
    return [sys.executable, "-I", "-S", launcher.__file__, *map(str, streams), *words]


async def _spawned(
    words: Sequence[str], streams: Sequence[int], environment: Mapping[str, str], folder: Path | None = None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command(streams, words),
        stdin=asyncio.subprocess.PIPE,  # its end is the end of the program
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=sorted(set(streams)),
        env=environment,
        cwd=folder,
        start_new_session=True,
    )


class Launched:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._launcher = process
        self.pid = 0
        self.returncode: int | None = None
        """The program's; negative for a signal."""
        self.left: tuple[int, ...] = ()
        """What could not be killed."""
        self.on_stopped: Callable[[], None] = lambda: None
        """Called when a signal stops the program."""
        self.exited = asyncio.Event()
        """The program has exited; what it left behind may still be ending."""
        self._transports: list[asyncio.BaseTransport] = []
        self.requests: asyncio.WriteTransport | None = None
        self.events = asyncio.StreamReader()
        self.output = asyncio.StreamReader(limit=LOG_LIMIT)
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._following = asyncio.create_task(self._follow())

    @classmethod
    async def start(cls, words: Sequence[str], environment: dict[str, str], events_limit: int = 0) -> Launched:
        """Start a program; with an `events_limit` its stdin and stdout are pipes too, without one only its output is.

        Raises the OSError of a program that cannot be started. If this is cancelled, nothing is left running.
        """
        return await _kept_whole(cls._start(words, environment, events_limit))

    @classmethod
    async def _start(cls, words: Sequence[str], environment: dict[str, str], events_limit: int) -> Launched:
        pipes = [os.pipe() for _ in range(3 if events_limit else 1)]
        ours = [pipes[0][1], pipes[1][0]] if events_limit else []
        theirs = [pipes[0][0], pipes[1][1]] if events_limit else [os.open(os.devnull, os.O_RDONLY), pipes[0][1]]
        theirs.append(pipes[-1][1])
        try:
            process = await _spawned(words, theirs, environment)
        except BaseException:
            for end in (*ours, pipes[-1][0]):
                os.close(end)
            raise
        finally:
            for end in set(theirs):
                os.close(end)
        launched = cls(process)
        await launched._connect([*ours, pipes[-1][0]], events_limit)
        return await launched._begun()

    @classmethod
    async def attached(
        cls, words: Sequence[str], streams: Sequence[int], environment: Mapping[str, str], folder: Path
    ) -> Launched:
        """Start a program in a folder, with descriptors of the caller's as its stdin, stdout and stderr."""

        async def start() -> Launched:
            return await cls(await _spawned(words, streams, environment, folder))._begun()

        return await _kept_whole(start())

    async def _begun(self) -> Launched:
        try:
            await self._started
        except OSError:
            await self.close()
            raise
        return self

    async def _connect(self, ours: list[int], events_limit: int) -> None:
        loop = asyncio.get_running_loop()
        if events_limit:
            self.events = asyncio.StreamReader(limit=events_limit)
            self.requests, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours[0], "wb", 0))
            self._transports.append(self.requests)
        readers = ((self.events, ours[1]), (self.output, ours[2])) if events_limit else ((self.output, ours[0]),)
        for reader, end in readers:
            protocol = functools.partial(asyncio.StreamReaderProtocol, reader)
            transport, _ = await loop.connect_read_pipe(protocol, os.fdopen(end, "rb", 0))
            self._transports.append(transport)

    @property
    def alive(self) -> bool:
        return self.returncode is None

    def kill(self) -> None:
        """Have the launcher end the whole tree."""
        lifeline = self._launcher.stdin
        if lifeline is not None and not lifeline.is_closing():
            with contextlib.suppress(ConnectionError, RuntimeError):
                lifeline.write(b"k")

    async def close(self) -> None:
        """End the tree and close the pipes; bounded, even if the launcher was stopped by a signal."""
        self.kill()
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await asyncio.shield(self._following)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._launcher.kill()  # the program dies with it
            await self._following
        for transport in self._transports:
            transport.close()
        if self._launcher.stdin is not None:
            self._launcher.stdin.close()

    def _fail(self, problem: OSError) -> None:
        if not self._started.done():
            self._started.set_exception(problem)

    async def _follow(self) -> None:
        assert self._launcher.stdout is not None
        async for line in self._launcher.stdout:
            what, *numbers = line.split()
            if what == b"pid":
                self.pid = int(numbers[0])
                self._started.set_result(None)
            elif what == b"failed":
                code = int(numbers[0])
                self._fail(OSError(code, os.strerror(code)))
            elif what == b"stopped":
                self.on_stopped()
            elif what == b"exit":
                self.returncode = int(numbers[0])
                self.exited.set()
            elif what == b"left":
                self.left = tuple(map(int, numbers))
        code = await self._launcher.wait()
        self._fail(ChildProcessError(f"its launcher {Path(launcher.__file__).name} exited with code {code}"))
        if self.returncode is None:
            self.returncode = code or -9
        self.exited.set()


async def _kept_whole(start: Coroutine[Any, Any, Launched]) -> Launched:
    """If this is cancelled, the program that was being started is ended."""
    starting = asyncio.ensure_future(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await (await starting).close()
        raise
