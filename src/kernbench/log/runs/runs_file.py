"""runs.jsonl as a file: each line is appended by a single write, and read with its offset.

The system keeps such writes apart, so there is no lock that another process could hold. A line torn by a killed process
or a full disk is never joined to the next: the writer checks the last byte first, and removes what did not fit.
Appending takes the same time however long the file is.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, open_regular
from kernbench.task.lookup import make_state

READ_AT_ONCE = 1 << 20
LONGEST_LINE = 1 << 26
"""What comes after so many bytes counts as another line: a file may be one endless line."""
LARGEST = 1 << 35
LOOKS, BETWEEN_LOOKS = 5, 0.004
"""A write of many pages can be seen half done: its end comes within a moment."""
ROW = b'{"event":"case"'
FINISHED = b'{"event":"finished"'
ENTERED = b'{"event":"entered"'
CONFIRMED = b'{"event":"confirmed"'
BEGIN = re.compile(rb'\{"event":"start","run":"([^"\\]*)"')
END = re.compile(rb'\{"event":"(?:finished|failed|cancelled)","run":"([^"\\]*)"')
VERSION = re.compile(rb',"schema":(\d{1,9})\b')
NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)


class JournalError(UserError):
    """The log cannot be written or read; one sentence."""


class RunsFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: str) -> int:
        """Appends the line and returns its offset; a line that does not fit leaves nothing behind."""
        try:
            make_state(self.path.parent)
            handle = open_regular(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except NotRegular as problem:
            raise JournalError(f"{problem}; the run is not recorded") from None
        except OSError as problem:
            raise self._refused(problem) from None
        try:
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
        """Lines, whole or torn, with their offsets; all or all but rows. `begin` must be the start of a line."""
        try:
            with open(open_regular(self.path), "rb", buffering=READ_AT_ONCE) as file:
                if (size := os.fstat(file.fileno()).st_size) > LARGEST:
                    raise JournalError(f"cannot read {self.path}: it is {size >> 20} MB; move it elsewhere")
                file.seek(begin)
                place, skipped = begin, b"\n" if rows else ROW
                while line := file.readline(LONGEST_LINE):
                    if not line.startswith(skipped):
                        yield place, line
                    place += len(line)
        except FileNotFoundError:
            return
        except NotRegular as problem:
            raise JournalError(f"cannot read the log: {problem}") from None
        except OSError as problem:
            raise JournalError(f"cannot read {self.path}: {problem.strerror}") from None

    def _write(self, handle: int, line: bytes) -> int:
        data = (b"\n" if _is_torn(handle) else b"") + line + b"\n"
        written = os.write(handle, data)
        end = os.lseek(handle, 0, os.SEEK_CUR)  # not from `size`: another process may have written since
        if written == len(data):
            return end - len(line) - 1
        if os.fstat(handle).st_size == end:
            os.ftruncate(handle, end - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _refused(self, problem: OSError) -> JournalError:
        reason = problem.strerror or str(problem)
        elsewhere = "; use `--state DIR` to keep runs elsewhere" if problem.errno in NOT_OURS else ""
        return JournalError(f"cannot write {self.path}: {reason}; the run is not recorded{elsewhere}")


def _is_torn(handle: int) -> bool:
    """Whether the file ends in the middle of a line, and another process is not just writing the rest of it."""
    for _ in range(LOOKS):
        size = os.fstat(handle).st_size
        if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
            return False
        time.sleep(BETWEEN_LOOKS)
    return True


def parse(line: bytes) -> dict[str, Any] | None:
    """A line as data; None when it is torn or not ours."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("event"), str) else None


def parse_all(lines: list[bytes]) -> list[dict[str, Any]]:
    """Each line as data, an empty table for one that is torn; one call if none is torn, in half the time."""
    try:
        data = json.loads(b"[%s]" % b",".join(lines))
    except (ValueError, RecursionError):
        data = []
    if len(data) != len(lines):
        return [parse(line) or {} for line in lines]
    return [item if isinstance(item, dict) else {} for item in data]
