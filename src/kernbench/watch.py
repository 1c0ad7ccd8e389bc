"""Directory watch: says when something in the task's folder may have changed.

The directory is watched, not the file: an editor that replaces the file atomically would be lost after its first save.
What changed is not trusted either (a bare touch fires too); the session compares contents. Nor is the watch: every two
seconds the files' times are looked at, for a save on a network's disk comes from another machine, and one that falls
between two watches tells nobody. Where polling is asked for, or the system has no watch to give, as when all of a
user's inotify instances are taken, they are looked at more often; watchfiles' own polling knows times by the second,
and of two saves within one misses the second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

QUIET_MS = 20
"""Delivery once nothing more has come for this long."""
LONGEST_MS = 200
LOOK_MS, POLL_MS = 2000, 300
SOON_S = 1.0
"""A watch that fails so soon, twice, is not to be had."""

Stamps = dict[str, tuple[int, int, int]]
"""Time, size and number of every file that counts."""


async def changes(
    folder: Path, stop: asyncio.Event, poll: bool = False, warn: Callable[[str], None] = lambda sentence: None
) -> AsyncIterator[None]:
    """Yields after every burst of changes until `stop` is set; outlives the folder's own removal."""
    known, failed = _stamps(folder), False
    while not stop.is_set():
        began = time.monotonic()
        try:
            async for seen in _polled(stop) if poll else _watched(folder, stop):
                now = await asyncio.to_thread(_stamps, folder)  # before whoever is told looks: nothing falls between
                if seen or now != known:
                    known = now
                    yield None
        except FileNotFoundError:  # moved away for a moment, as by a git checkout
            await asyncio.sleep(0.2)
        except Exception as problem:  # such as a file whose name cannot be decoded
            soon = time.monotonic() - began < SOON_S
            poll, failed = soon and failed, soon
            if poll:
                warn(f"the folder is looked at every {POLL_MS} ms, because it cannot be watched: {_innermost(problem)}")
        now = _stamps(folder)
        if now != known and not stop.is_set():
            known = now
            yield None


async def _watched(folder: Path, stop: asyncio.Event) -> AsyncIterator[bool]:
    """Whether something was seen; ends when the folder is gone."""
    from watchfiles import Change, awatch

    def relevant(_change: Change, path: str) -> bool:
        try:
            parts = Path(path).relative_to(folder).parts
        except ValueError:
            return False
        return all(map(_counts, parts))

    watcher = awatch(
        folder,
        watch_filter=relevant,
        debounce=LONGEST_MS,
        step=QUIET_MS,
        stop_event=stop,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
    )
    async for batch in watcher:
        yield bool(batch)
        if not folder.is_dir():
            return


async def _polled(stop: asyncio.Event) -> AsyncIterator[bool]:
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_MS / 1000)
        yield False


def _stamps(folder: Path) -> Stamps:
    found: Stamps = {}
    for place, folders, files in os.walk(folder):
        folders[:] = filter(_counts, folders)
        for name in filter(_counts, files):
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):  # gone since
                about = os.stat(path)
                found[path] = about.st_mtime_ns, about.st_size, about.st_ino
    return found


def _counts(name: str) -> bool:
    return not name.startswith(".") and name not in ("__pycache__", "ITERATIONS.md")


def _innermost(problem: BaseException) -> BaseException:
    """What was raised in a thread comes in a group."""
    while inner := getattr(problem, "exceptions", ()):
        problem = inner[0]
    return problem
