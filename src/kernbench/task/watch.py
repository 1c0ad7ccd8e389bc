"""Directory watch: says when something in the task's folder may have changed.

The directory is watched, not the file: an editor that replaces the file atomically would be lost after its first save.
What changed is not trusted either (a bare touch fires too); the session compares contents. Nor is the watch: every two
seconds the files' times are looked at, for a save on a network's disk comes from another machine, and one that falls
between two watches tells nobody. Where polling is asked for, or the system has no watch to give, as when all of a
user's inotify instances are taken, they are looked at more often; watchfiles' own polling knows times by the second,
and of two saves within one misses the second. Of a large folder a look costs more, and is taken less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from kernbench.task import source_files

QUIET_MS = 20
"""Delivery once nothing more has come for this long."""
LONGEST_MS = 200
LOOK_MS, POLL_MS = 2000, 300
LEAST_REST = 50
"""Times what a look took of a processor, not of the time: at the end of a network most of it is waiting."""
LONGEST_REST_S = 1.0
"""Where nothing else tells of a save."""
SOON_S = 1.0
"""A watch that fails so soon, twice, is not to be had."""


class FolderPoller:
    """What the files' times say, and when that was last asked."""

    def __init__(self, folder: Path, state: Path | None, warn: Callable[[str], None]) -> None:
        self._folder, self._state, self._warn = folder, state, warn
        self._known: source_files.Stamps | None = None
        self._at = self._took = 0.0
        self._problem = ""

    def forget(self) -> None:
        """Something was seen: the next look finds it, and what was saved right after it, once more."""
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
        except Exception as problem:  # of a network's disk, say; the next look may succeed
            place, why = getattr(problem, "filename", None), getattr(problem, "strerror", None)
            self._tell(f"{place or self._folder} cannot be looked at: {why or problem}")
        self._at = time.monotonic()
        return before != self._known

    def _look(self) -> tuple[source_files.Stamps, float]:
        began = time.thread_time()
        return source_files.stamps(self._folder, self._state), time.thread_time() - began

    def _tell(self, problem: str) -> None:
        """Once, not at every look."""
        if problem != self._problem:
            self._warn(f"{problem}; saves are answered again when that is mended")
        self._problem = problem


async def changes(
    folder: Path,
    stop: asyncio.Event,
    poll: bool = False,
    warn: Callable[[str], None] = lambda sentence: None,
    state: Path | None = None,
) -> AsyncIterator[bool]:
    """After every burst of changes, until `stop` is set: True; False where only the files' times tell of one.

    Outlives the folder's own removal.
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
        except Exception as problem:  # such as a file whose name cannot be decoded
            soon = time.monotonic() - began < SOON_S
            poll, failed = soon and failed, soon
            if poll:
                warn(f"the folder is looked at every {POLL_MS} ms, because it cannot be watched: {_innermost(problem)}")
        if not stop.is_set() and await looks.found_a_change():
            yield False


async def _watched(folder: Path, state: Path | None, stop: asyncio.Event) -> AsyncIterator[bool]:
    """Whether something that counts was seen; ends when the folder is gone, or another is in its place."""
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
        watch_filter=None,  # a run writes all the time, and what is filtered there ends no waiting
        debounce=LONGEST_MS,
        step=QUIET_MS,
        stop_event=stop,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
    )
    async for batch in watcher:
        yield any(counts(path) for _change, path in batch)
        if source_files.identity(folder) != watched:  # the watch is on the one that was there before
            return


def _within(folder: Path, state: Path | None) -> tuple[str, ...]:
    """Where in the folder the state lies, however both are spelled; empty where it lies elsewhere."""
    if state is None or not state.resolve().is_relative_to(folder.resolve()):
        return ()
    return state.resolve().relative_to(folder.resolve()).parts


async def _polled(stop: asyncio.Event) -> AsyncIterator[bool]:
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_MS / 1000)
        yield False


def _innermost(problem: BaseException) -> BaseException:
    """What was raised in a thread comes in a group."""
    while inner := getattr(problem, "exceptions", ()):
        problem = inner[0]
    return problem
