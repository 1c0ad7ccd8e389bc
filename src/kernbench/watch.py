"""Directory watch: says when something in the task's folder may have changed.

The directory is watched, not the file: an editor that replaces the file atomically would be lost after its first save.
What changed is not trusted either (a bare touch fires too); the session compares contents. Where that is asked for, or
the system has no watch to give, as when all of a user's inotify instances are taken, the folder is polled; here, for
watchfiles' polling knows times by the second, and of two saves within one would miss the second.
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
POLL_MS = 300
SOON_S = 1.0
"""A watch that fails so soon, twice, is not to be had."""

Stamps = dict[str, tuple[int, int, int]]
"""Time, size and number of every file that counts."""


async def changes(
    folder: Path, stop: asyncio.Event, poll: bool = False, warn: Callable[[str], None] = lambda sentence: None
) -> AsyncIterator[None]:
    """Yields after every burst of changes until `stop` is set; outlives the folder's own removal."""
    failed = False
    while not stop.is_set() and not poll:
        if not folder.is_dir():  # moved away for a moment, as by a git checkout
            await asyncio.sleep(0.2)
            continue
        began = time.monotonic()
        try:
            async for _batch in _watched(folder, stop):
                yield None
                if not folder.is_dir():
                    break
        except FileNotFoundError:
            continue
        except Exception as problem:
            soon = time.monotonic() - began < SOON_S
            poll, failed = soon and failed, soon
            if poll:
                warn(f"the folder is looked at every {POLL_MS} ms, because it cannot be watched: {_innermost(problem)}")
            await asyncio.sleep(QUIET_MS / 1000)
            yield None  # something changed, such as a file whose name cannot be decoded
    async for _change in _polled(folder, stop):
        yield None


def _watched(folder: Path, stop: asyncio.Event) -> AsyncIterator[object]:
    from watchfiles import Change, awatch

    def relevant(_change: Change, path: str) -> bool:
        try:
            parts = Path(path).relative_to(folder).parts
        except ValueError:
            return False
        return all(map(_counts, parts))

    return awatch(folder, watch_filter=relevant, debounce=LONGEST_MS, step=QUIET_MS, stop_event=stop)


async def _polled(folder: Path, stop: asyncio.Event) -> AsyncIterator[None]:
    before: Stamps = {}
    while not stop.is_set():
        now = await asyncio.to_thread(_stamps, folder)
        if now != before:
            before = now
            yield None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_MS / 1000)


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
