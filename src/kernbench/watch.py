"""Directory watch: says when something in the task's folder may have changed.

The directory is watched, not the file: an editor that replaces the file atomically would be lost after its first save.
What changed is not trusted either (a bare touch fires too); the session compares contents.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

QUIET_MS = 20
"""Delivery once nothing more has come for this long."""
LONGEST_MS = 200
POLL_MS = 300


async def changes(folder: Path, stop: asyncio.Event, poll: bool = False) -> AsyncIterator[None]:
    """Yields after every burst of changes until `stop` is set; outlives the folder's own removal."""
    from watchfiles import Change, awatch

    def relevant(_change: Change, path: str) -> bool:
        try:
            parts = Path(path).relative_to(folder).parts
        except ValueError:
            return False
        return not any(part.startswith(".") or part in ("__pycache__", "ITERATIONS.md") for part in parts)

    while not stop.is_set():
        if not folder.is_dir():  # moved away for a moment, as by a git checkout
            await asyncio.sleep(0.2)
            continue
        watcher = awatch(
            folder,
            watch_filter=relevant,
            debounce=LONGEST_MS,
            step=QUIET_MS,
            stop_event=stop,
            force_polling=poll or None,
            poll_delay_ms=POLL_MS,
        )
        try:
            async for _batch in watcher:
                yield None
                if not folder.is_dir():
                    break
        except FileNotFoundError:
            continue
