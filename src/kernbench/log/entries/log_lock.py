"""The lock of ITERATIONS.md: waits a bounded time, then names the process that holds it.

Any program may hold the lock, a kernel under test included, and may never let go. So nothing here waits for good, and
the screen's thread does not wait at all: it leaves this to the file thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, open_regular
from kernbench.machine.plain_text import one_line

PATIENCE = 2.0
"""Seconds that a command waits for the lock; a workbench holds it for some milliseconds."""
PAUSE = 0.01


class LogbookError(UserError):
    """ITERATIONS.md could not be written or changed; one sentence."""


class LogHeld(LogbookError):
    """Another process holds the lock of ITERATIONS.md."""


@contextlib.contextmanager
def locked(path: Path, patience: float = PATIENCE) -> Iterator[int]:
    """The open, locked file. Checks again after the wait, as an editor may have replaced the file."""
    _refuse_link_outside(path)
    until = time.monotonic() + patience
    while True:
        try:
            handle = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except BlockingIOError:  # another process has a lease on it
            _pause(path, until)
            continue
        except NotRegular as problem:
            raise LogbookError(str(problem)) from None
        except OSError as problem:
            raise LogbookError(f"{path} cannot be written: {problem.strerror}") from None
        try:
            if _taken(handle) and is_same(path, handle):
                yield handle
                return
        finally:
            os.close(handle)
        _pause(path, until)


def is_same(path: Path, handle: int) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _refuse_link_outside(path: Path) -> None:
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        target = f"{path.name} is a link to {os.readlink(path)}, outside the task's folder"
        raise LogbookError(f"{target}: kernbench does not write there; put a file in its place")


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: the single write has to do
        return True
    return True


def _pause(path: Path, until: float) -> None:
    if time.monotonic() >= until:
        raise LogHeld(f"{path.name} is locked by {holder(path)}")
    time.sleep(PAUSE)


def holder(path: Path) -> str:
    """The process that holds the lock, as `process 4242 (flock)`, as far as the system knows it."""
    with contextlib.suppress(OSError, ValueError):
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()  # 1: FLOCK ADVISORY WRITE 4242 08:01:1234 0 EOF; `->` marks one that waits
            if fields[1] in ("FLOCK", "LEASE") and fields[5].rpartition(":")[2] == inode and int(fields[4]) > 0:
                return f"process {fields[4]}{_name(fields[4])}"
    return "another process"


def _name(pid: str) -> str:
    try:
        return f" ({one_line(Path(f'/proc/{pid}/comm').read_text(encoding='utf-8', errors='replace'))})"
    except OSError:
        return ""
