"""Detects another workbench open on the same task: both would time every save at the same moment and log it twice.

The state folder has two lock files. Each workbench holds one while it is open and checks the other, so that the first
also notices the second. The system releases a lock when its process dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from harness.shared.regular_file import NotRegular, open_regular
from kernbench.task.lookup import make_state


class WorkbenchLock:
    def __init__(self, state: Path) -> None:
        self._places = (state / "workbench.lock", state / "workbench-2.lock")
        self._held: tuple[Path, int] | None = None
        self.is_alone = True
        """No other workbench was open at the last check."""

    def announce(self) -> str:
        """Takes a lock if it holds none; returns a warning once when another workbench appears."""
        other = self._other()
        has_come, self.is_alone = bool(other) and self.is_alone, not other
        both = "both time and log every save; close one"
        return f"another workbench is open on this task (process {other}): {both}" if has_come else ""

    def leave(self) -> None:
        if self._held is not None:
            os.close(self._held[1])
            self._held = None

    def _other(self) -> str:
        """Id of the process that holds the other lock, or "". Without working locks nothing is detected."""
        other = ""
        for place in self._places:
            if self._held is not None and self._held[0] == place:
                continue
            owner = self._try(place)
            other = other or owner
        return other

    def _try(self, place: Path) -> str:
        """Id of the process that holds the lock, or ""; takes a free one if this workbench holds none."""
        is_wanted = self._held is None
        try:
            if is_wanted:
                make_state(place.parent)
            lock = open_regular(place, os.O_RDWR | (os.O_CREAT if is_wanted else 0))
        except (OSError, NotRegular):
            return ""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            return owner or "unknown" if isinstance(problem, BlockingIOError) else ""
        if not is_wanted:
            os.close(lock)
            return ""
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        self._held = place, lock
        return ""
