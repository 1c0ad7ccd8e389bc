"""Whether another workbench is open on a task: both would time every save, at the same moment, and enter it twice.

A lock on a file of the state folder, held as long as the workbench is open and let go by the system when it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from kernbench.project import make_state


class Presence:
    def __init__(self, state: Path) -> None:
        self._path = state / "workbench.lock"
        self._held: int | None = None

    def take(self) -> str:
        """Takes the place; the process that has it already, or nothing. Where no lock can be had, nobody is there."""
        try:
            make_state(self._path.parent)
            place = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return ""
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            owner = os.read(place, 32).decode(errors="replace").strip()
            os.close(place)
            return owner or "unknown" if isinstance(problem, BlockingIOError) else ""
        with contextlib.suppress(OSError):
            os.ftruncate(place, 0)
            os.write(place, f"{os.getpid()}\n".encode())
        self._held = place
        return ""

    def leave(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None
