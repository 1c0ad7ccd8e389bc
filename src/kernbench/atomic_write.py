"""A file replaced as a whole: its new contents are written beside it, then moved into its place, or taken away again.

    with written_aside(path, data) as move:
        move()

A link is followed and the file's mode kept. Whatever cannot be written names the file that was meant, in the OSError.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = ".kernbench-"
"""Of what lies beside for a moment: hidden, so that it is nobody's source."""


@contextlib.contextmanager
def written_aside(path: Path, data: bytes, *, durable: bool = False) -> Iterator[Callable[[], None]]:
    """Yields what moves the contents into place; where that was not called, nothing is left behind.

    `durable` contents are on the disk before they take the place of others.
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
        with scratch.open("xb") as file:  # a new file's mode is what the user's umask makes it
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            scratch.chmod(target.stat().st_mode & 0o7777)


def _move(scratch: Path, target: Path) -> None:
    with _named(target):
        scratch.replace(target)


@contextlib.contextmanager
def _named(target: Path) -> Iterator[None]:
    """A full disk names no file, and the one beside would tell nobody anything."""
    try:
        yield
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(target)) from None
