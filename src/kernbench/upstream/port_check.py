"""`port --check`: runs the other repository's tests before and after, and puts the file back if one broke.

A test broke if the tests fail and pytest names it only afterwards; of another program only the exit code counts.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.shared import format as fmt
from kernbench.machine.plain_text import one_line
from kernbench.task.lookup import repository_root
from kernbench.upstream import port as porting
from kernbench.upstream.port import Port, PortError

NAMED = re.compile(r"(?:FAILED|ERROR) (\S.*?)(?: - .*)?")
"""A line of pytest's short summary."""
TESTS_RAN = (0, 1)
"""Exit codes with which pytest says that it could run them."""
ENDINGS = (signal.SIGTERM, signal.SIGHUP)
LONGEST_LINE = 1 << 16
KEPT_LINES = 20
SHOWN = 10
"""Of the tests that broke."""


@dataclass(frozen=True)
class Tests:
    """What came of one run of the tests."""

    code: int
    failed: frozenset[str]
    last: tuple[str, ...]
    """Lines of its output."""

    @property
    def end(self) -> str:
        return next((one_line(line) for line in reversed(self.last) if line.strip()), "it printed nothing")


def write_checked(port: Port, command: str, tell: Callable[[str], None]) -> str:
    """Writes the file; returns which tests broke, in which case the file is as it was. So it is after ctrl+c, and if
    the terminal is closed."""
    folder = repository_root(port.target.absolute().parent) or port.target.absolute().parent
    tell(f"`{command}` before the port, in {folder}")
    old = port.old
    before = run(command, folder)
    if before.code not in TESTS_RAN or (before.code and not before.failed):
        raise PortError(f"not written: without the port, `{command}` exits with {before.code}: {before.end}")
    if port.old != old:
        raise PortError(f"not written: {port.target} was changed while the tests ran")
    with _ended_like_ctrl_c():
        try:
            porting.write(port)
            tell(f"`{command}` after it")
            after = run(command, folder)
        except BaseException:
            if port.old == port.new:
                porting.put_back(port, old)
            raise
    said = broken(before, after)
    if said:
        porting.put_back(port, old)
    elif before.failed:
        tell(f"no test broke; {fmt.plural(len(before.failed), 'test')} failed before, too")
    else:
        tell("no test broke")
    return said


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """The other signals that end a command do what ctrl+c does: what has begun is undone."""

    def end(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = {number: signal.signal(number, end) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def broken(before: Tests, after: Tests) -> str:
    """What the port broke, in one sentence; empty if nothing."""
    if after.code == 0:
        return ""
    names = sorted(after.failed - before.failed)
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return f"{fmt.plural(len(names), 'test')} broke: {', '.join(names[:SHOWN])}{more} (exit code {after.code})"
    if after.code != before.code:
        return f"the tests exit with {after.code}, before the port with {before.code}: {after.end}"
    return ""


def run(command: str, folder: Path) -> Tests:
    """In a shell of its repository; whatever it started ends with it."""
    failed: set[str] = set()
    last: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
    process = subprocess.Popen(
        ["sh", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        while data := process.stdout.readline(LONGEST_LINE):
            line = data.decode("utf-8", "replace").rstrip()
            last.append(line)
            if found := NAMED.fullmatch(line):
                failed.add(one_line(found[1]))
        return Tests(process.wait(), frozenset(failed), tuple(last))
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
