"""Whether another workbench is open on a task: both would time every save, at the same moment, and enter it twice.

Two places, each a lock on a file of the state folder, held as long as a workbench is open and let go by the system when
it dies. Everybody takes one and looks at the other, so that the first also learns of the second.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from kernbench.task.lookup import make_state


class WorkbenchLock:
    def __init__(self, state: Path) -> None:
        self._places = (state / "workbench.lock", state / "workbench-2.lock")
        self._held: tuple[Path, int] | None = None
        self.is_alone = True
        """No other workbench was there at the last look."""

    def announce(self) -> str:
        """Takes a place where it has none; says who is there, once when that one has come."""
        other = self._other()
        has_come, self.is_alone = bool(other) and self.is_alone, not other
        both = "both time every save and enter it in the log; close one of them"
        return f"another workbench is open on this task (process {other}): {both}" if has_come else ""

    def leave(self) -> None:
        if self._held is not None:
            os.close(self._held[1])
            self._held = None

    def _other(self) -> str:
        """The process that has the other place, or nothing. Where no lock can be had, nobody is there."""
        other = ""
        for place in self._places:
            if self._held is not None and self._held[0] == place:
                continue
            owner = self._try(place)
            other = other or owner
        return other

    def _try(self, place: Path) -> str:
        """Who has the place; a free one is taken by whoever has none."""
        is_wanted = self._held is None
        try:
            if is_wanted:
                make_state(place.parent)
            lock = os.open(place, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if is_wanted else 0), 0o644)
        except OSError:
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
