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

from kernbench import snapshot

QUIET_MS = 20
"""Delivery once nothing more has come for this long."""
LONGEST_MS = 200
LOOK_MS, POLL_MS = 2000, 300
LEAST_REST = 50
"""Times what a look took: at most a fiftieth of a processor goes into looking."""
SOON_S = 1.0
"""A watch that fails so soon, twice, is not to be had."""


class Looks:
    """What the files' times say, and when that was last asked."""

    def __init__(self, folder: Path, state: Path | None) -> None:
        self._folder, self._state = folder, state
        self._known: snapshot.Stamps | None = None
        self._at = self._took = 0.0

    def forget(self) -> None:
        """Something was seen: the next look finds it, and what was saved right after it, once more."""
        self._known = None

    def is_due(self, pause_s: float) -> bool:
        return time.monotonic() - self._at >= max(pause_s, LEAST_REST * self._took)

    async def found_a_change(self) -> bool:
        began = time.monotonic()
        before, self._known = self._known, await asyncio.to_thread(snapshot.stamps, self._folder, self._state)
        self._at = time.monotonic()
        self._took = self._at - began
        return before != self._known


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
    state = state.absolute() if state is not None else None
    looks, failed = Looks(folder, state), False
    await looks.found_a_change()
    while not stop.is_set():
        began = time.monotonic()
        try:
            async for seen in _polled(stop) if poll else _watched(folder, state, stop):
                if seen:
                    looks.forget()
                    yield True
                elif looks.is_due(POLL_MS / 1000 if poll else 0.9 * LOOK_MS / 1000) and await looks.found_a_change():
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
    """Whether something that counts was seen; ends when the folder is gone."""
    from watchfiles import awatch

    def counts(path: str) -> bool:
        try:
            parts = Path(path).relative_to(folder).parts
        except ValueError:
            return False
        return not any(map(snapshot.is_left_out, parts)) and not (state and Path(path).is_relative_to(state))

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
        if not folder.is_dir():
            return


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
