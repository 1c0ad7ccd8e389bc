"""The thread that reads and writes a session's files, in order, so that the screen waits for no disk and no lock.

number = await in_thread(function, argument)
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")
CLOSING = 3.0
"""Seconds that closing waits for what is still to be written."""


class FileThread:
    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, function: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Queues the call at once; await its result or its error. A cancelled caller does not stop it."""
        if self._thread is None:
            # A daemon: a disk that never answers must not keep the process from ending.
            self._thread = threading.Thread(target=self._serve, name="files", daemon=True)
            self._thread.start()
        done: Future[_T] = Future()
        self._queue.put(lambda: _carry_out(done, function, arguments))
        inside = asyncio.wrap_future(done)
        result = asyncio.shield(inside)
        for future in (inside, result):
            future.add_done_callback(_retrieve)
        return result

    async def close(self) -> bool:
        """Waits for what is queued, for a bounded time; False if it was not written by then."""
        if self._thread is None:
            return True
        last, self._thread = self(int), None
        self._queue.put(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await last
            return True
        return False

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


def _carry_out(done: Future[_T], function: Callable[..., _T], arguments: tuple[Any, ...]) -> None:
    try:
        done.set_result(function(*arguments))
    except BaseException as problem:
        done.set_exception(problem)


def _retrieve(result: asyncio.Future[Any]) -> None:
    """A caller that was cancelled takes no error; asyncio would print it."""
    if not result.cancelled():
        result.exception()
