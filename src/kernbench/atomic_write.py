"""Replaces a file atomically: writes a temporary file next to it, then renames it into place or deletes it.

    with written_aside(path, data) as move:
        move()

Links are followed. The file's mode is kept, and its owner where that is permitted; another hard link keeps the old
contents. An OSError names the target, not the temporary file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = ".kernbench-"
"""Of temporary files: hidden, so that they never count as sources."""


@contextlib.contextmanager
def written_aside(path: Path, data: bytes, *, durable: bool = False) -> Iterator[Callable[[], None]]:
    """Yields a function that moves the contents into place; if it is not called, nothing is left behind.

    `durable` contents are synced to disk before the move.
    """
    target = path.resolve()
    scratch = target.with_name(PREFIX + secrets.token_hex(6))
    try:
        _write(scratch, data, target, durable)
        yield lambda: _move(scratch, target)
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def _write(scratch: Path, data: bytes, target: Path, durable: bool) -> None:
    with _named(target):
        with scratch.open("xb") as file:  # a new file gets its mode from the user's umask
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            about = target.stat()
            with contextlib.suppress(OSError):  # only root may give files away, and a container may know no such user
                os.chown(scratch, about.st_uid, about.st_gid)
            scratch.chmod(about.st_mode & 0o7777)


def _move(scratch: Path, target: Path) -> None:
    with _named(target):
        scratch.replace(target)


@contextlib.contextmanager
def _named(target: Path) -> Iterator[None]:
    """ENOSPC carries no filename, and other errors name the temporary file: report the target."""
    try:
        yield
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(target)) from None
