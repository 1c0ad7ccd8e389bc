"""Watches the task's folder and reports when something in it may have changed.

The watch is on the folder, not the file: an editor that replaces the file atomically would be lost after its first
save. A reported change is not trusted (a bare touch fires too): the session compares contents. Nor is the watch: every
two seconds the files' times are checked, because nothing reports a save on a network disk by another machine, or one
between two watches. With polling, or if the system cannot watch (all of the user's inotify instances are in use), the
times are checked more often. watchfiles' polling would not do: its times have a resolution of one second, so it misses
the second of two saves within one. In a large folder a check costs more and is made less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from kernbench.task import source_files

QUIET_MS = 20
"""A burst of changes is delivered once nothing more has arrived for this long."""
LONGEST_MS = 200
LOOK_MS, POLL_MS = 2000, 300
LEAST_REST = 50
"""Pause between checks, in CPU time of a check; its wall time is mostly waiting on a network disk."""
LONGEST_REST_S = 1.0
"""When polling is the only way to notice a save."""
SOON_S = 1.0
"""After two failures this soon the watch is given up."""


class FolderPoller:
    """The files' times at the last check, and when that was."""

    def __init__(self, folder: Path, state: Path | None, warn: Callable[[str], None]) -> None:
        self._folder, self._state, self._warn = folder, state, warn
        self._known: source_files.Stamps | None = None
        self._at = self._took = 0.0
        self._problem = ""

    def forget(self) -> None:
        """After a reported change: the next check finds it again, with anything saved right after it."""
        self._known = None

    def is_due(self, poll: bool) -> bool:
        rest = LEAST_REST * self._took
        pause = max(POLL_MS / 1000, min(rest, LONGEST_REST_S)) if poll else max(0.9 * LOOK_MS / 1000, rest)
        return time.monotonic() - self._at >= pause

    async def found_a_change(self) -> bool:
        before = self._known
        try:
            self._known, self._took = await asyncio.to_thread(self._look)
            self._problem = ""
        except Exception as problem:  # such as a network disk's; the next check may succeed
            place, why = getattr(problem, "filename", None), getattr(problem, "strerror", None)
            self._tell(f"cannot read {place or self._folder}: {why or problem}")
        self._at = time.monotonic()
        return before != self._known

    def _look(self) -> tuple[source_files.Stamps, float]:
        began = time.thread_time()
        return source_files.stamps(self._folder, self._state), time.thread_time() - began

    def _tell(self, problem: str) -> None:
        """Once per problem, not at every check."""
        if problem != self._problem:
            self._warn(f"{problem}; saves will start runs again once that is fixed")
        self._problem = problem


async def changes(
    folder: Path,
    stop: asyncio.Event,
    poll: bool = False,
    warn: Callable[[str], None] = lambda sentence: None,
    state: Path | None = None,
) -> AsyncIterator[bool]:
    """Yields after every burst of changes until `stop` is set: True if the watch saw it, False if only the files' times
    show it.

    Survives the removal of the folder.
    """
    looks, failed = FolderPoller(folder, state, warn), False
    await looks.found_a_change()
    while not stop.is_set():
        began = time.monotonic()
        try:
            async for seen in _polled(stop) if poll else _watched(folder, state, stop):
                if seen:
                    looks.forget()
                    yield True
                elif looks.is_due(poll) and await looks.found_a_change():
                    yield False
        except FileNotFoundError:  # moved away for a moment, as by a git checkout
            await asyncio.sleep(0.2)
        except Exception as problem:
            if _is_odd_name(problem):
                await asyncio.sleep(QUIET_MS / 1000)
            else:
                soon = time.monotonic() - began < SOON_S
                poll, failed = soon and failed, soon
            if poll:
                warn(f"cannot watch the folder ({_innermost(problem)}); polling every {POLL_MS} ms")
        if not stop.is_set() and await looks.found_a_change():
            yield False


async def _watched(folder: Path, state: Path | None, stop: asyncio.Event) -> AsyncIterator[bool]:
    """Yields whether a relevant change was seen; ends when the folder is gone or replaced."""
    from watchfiles import awatch

    within = _within(folder, state)
    watched = source_files.identity(folder)

    def counts(path: str) -> bool:
        try:
            parts = Path(path).relative_to(folder).parts
        except ValueError:
            return False
        return not any(map(source_files.is_skipped, parts)) and (not within or parts[: len(within)] != within)

    watcher = awatch(
        folder,
        watch_filter=None,  # filtered changes would not end a wait, and a run writes all the time
        debounce=LONGEST_MS,
        step=QUIET_MS,
        stop_event=stop,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
    )
    async for batch in watcher:
        yield any(counts(path) for _change, path in batch)
        if await asyncio.to_thread(source_files.identity, folder) != watched:  # the watch is still on the old folder
            return


def _within(folder: Path, state: Path | None) -> tuple[str, ...]:
    """The state folder's path inside the folder, however both are spelled; empty if it is elsewhere."""
    if state is None or not state.resolve().is_relative_to(folder.resolve()):
        return ()
    return state.resolve().relative_to(folder.resolve()).parts


async def _polled(stop: asyncio.Event) -> AsyncIterator[bool]:
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_MS / 1000):
                await stop.wait()
        yield False


def _is_odd_name(problem: Exception) -> bool:
    """Whether the watch was on the folder and ended at a file whose name is not UTF-8. A watch that cannot begin raises
    the same kind of error, but not in a group."""
    return isinstance(problem, ExceptionGroup) and isinstance(_innermost(problem), RuntimeError)


def _innermost(problem: BaseException) -> BaseException:
    """Exceptions from a thread arrive in a group."""
    while inner := getattr(problem, "exceptions", ()):
        problem = inner[0]
    return problem
