"""Opens what the user's folders hold only if it is a regular file of sane size.

A repository can carry a link to /dev/zero, and a fifo in the place of a file stops whatever opens it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from harness.shared.errors import UserError


class NotRegular(UserError):
    """The path names a folder, a device or a fifo, or a file that is too large; one sentence."""


def read_bytes(path: Path, limit: int) -> bytes:
    """The contents of a file of at most `limit` bytes."""
    handle = open_regular(path)
    try:
        size = os.fstat(handle).st_size
        if size > limit:
            raise NotRegular(f"{path} is {size:,} bytes; kernbench reads at most {limit:,}")
        data = bytearray()
        while len(data) <= limit and (part := os.read(handle, min(limit + 1 - len(data), 1 << 24))):
            data += part
    finally:
        os.close(handle)
    if len(data) > limit:
        raise NotRegular(f"{path} grew while kernbench was reading it")
    return bytes(data)


def read_text(path: Path, limit: int) -> str:
    """The same as text; raises UnicodeDecodeError if it is not UTF-8."""
    return read_bytes(path, limit).decode("utf-8")


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A handle of the file. Never waits: not for the other end of a fifo, nor for a process that holds a lease."""
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        if problem.errno != errno.ENXIO:  # a socket, or a fifo that nothing reads
            raise
        raise _refused(path, os.stat(path).st_mode) from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    raise _refused(path, mode)


def _refused(path: Path, mode: int) -> NotRegular:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a fifo", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    return NotRegular(f"{path} is {kind}, not a regular file; move it out of the way")
