"""runs.jsonl as a file: lines go in whole, under a lock, and come out with their place.

A line that a killed process or a full disk tore is never glued to the next: whoever writes looks at the last byte
first, and takes back what did not fit. Appending costs the same however long the file is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.shared.errors import UserError
from kernbench.task.lookup import make_state

READ_AT_ONCE = 1 << 20
ROW = b'{"event":"case"'
FINISHED = b'{"event":"finished"'
BEGIN = re.compile(rb'\{"event":"start","run":"([^"\\]*)"')
END = re.compile(rb'\{"event":"(?:finished|failed|cancelled)","run":"([^"\\]*)"')
VERSION = re.compile(rb',"schema":(\d+)')
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a line may raise that is torn, or that somebody wrote into."""
NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)


class JournalError(UserError):
    """The log cannot be written or read; one sentence."""


class RunsFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: str) -> int:
        """Writes the line and returns where it begins; a line that does not fit leaves nothing behind."""
        try:
            make_state(self.path.parent)
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as problem:
            raise self._refused(problem) from None
        try:
            with contextlib.suppress(OSError):  # a file system without locks: a single write is all there is
                fcntl.flock(handle, fcntl.LOCK_EX)
            return self._write(handle, line.encode("utf-8", "replace"))
        except OSError as problem:
            raise self._refused(problem) from None
        finally:
            os.close(handle)

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def scan(self, begin: int = 0, rows: bool = True) -> Iterator[tuple[int, bytes]]:
        """Whole and torn lines with their offsets, or those that are not rows; `begin` must be the beginning of one."""
        try:
            with self.path.open("rb", buffering=READ_AT_ONCE) as file:
                file.seek(begin)
                place = begin
                for line in file:
                    if rows or not line.startswith(ROW):
                        yield place, line
                    place += len(line)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise JournalError(f"{self.path} cannot be read: {problem.strerror}") from None

    def _write(self, handle: int, line: bytes) -> int:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        data = (b"\n" if torn else b"") + line + b"\n"
        try:
            written = os.write(handle, data)
        except OSError:
            written = 0
            raise
        finally:
            if written != len(data):
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, size)
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # not `size`: where there are no locks another process may have written since
        return os.lseek(handle, 0, os.SEEK_CUR) - len(line) - 1

    def _refused(self, problem: OSError) -> JournalError:
        reason = problem.strerror or str(problem)
        elsewhere = "; `--state DIR` keeps runs elsewhere" if problem.errno in NOT_OURS else ""
        return JournalError(f"{self.path} cannot be written: {reason}; the run is not recorded{elsewhere}")


def parse(line: bytes) -> dict[str, Any] | None:
    """A line as data; None when it is torn or not ours."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) and isinstance(data.get("event"), str) else None


def parse_all(lines: list[bytes]) -> list[dict[str, Any]]:
    """Each line as data, an empty table for one that is torn; in one go where none is, which is half the time."""
    try:
        data = json.loads(b"[%s]" % b",".join(lines))
    except ValueError:
        data = []
    if len(data) != len(lines):
        return [parse(line) or {} for line in lines]
    return [item if isinstance(item, dict) else {} for item in data]
