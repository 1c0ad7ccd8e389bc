"""Imports what `port` writes and runs the tests of `--check`, both before and after; puts the file back if one broke.

A test broke if the tests fail and pytest names it only afterwards; of another program only the exit code counts.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
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
IMPORT = "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2])"
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


def write_checked(port: Port, command: str | None, tell: Callable[[str], None], python: str | None = None) -> str:
    """Writes the file; returns what broke, in which case the file is as it was. So it is after ctrl+c, and if the
    terminal is closed."""
    target, old = port.target.parent.resolve() / port.target.name, port.old
    folder = repository_root(target.parent) or target.parent
    first = _importing(port.source if old is None else target, python)  # a source has its other files next to it
    imported = run(first, folder) if target.suffix == ".py" else None
    before = _tests_before(command, folder, tell) if command else None
    if port.old != old:
        raise PortError(f"not written: {port.target} was changed while the tests ran")
    with _ended_like_ctrl_c():
        try:
            porting.write(port)
            broke = broken(imported, run(_importing(target, python), folder), "its import exits") if imported else ""
            if command and before and not broke:
                tell(f"`{command}` after it")
                broke = broken(before, run(command, folder))
        except BaseException:
            if port.old != old and (left := porting.put_back(port, old)):
                tell(left)
            raise
    if broke:
        left = porting.put_back(port, old)
        return f"{left}, though {broke}" if left else f"put back, because {broke}"
    if imported and imported.code:
        tell(f"its import checks nothing: without the port it fails, too: {imported.end}")
    if before:
        failed = f"; {fmt.plural(len(before.failed), 'test')} failed before, too" if before.failed else ""
        tell(f"no test broke{failed}")
    return ""


def _tests_before(command: str, folder: Path, tell: Callable[[str], None]) -> Tests:
    tell(f"`{command}` before the port, in {folder}")
    before = run(command, folder)
    if before.code not in TESTS_RAN or (before.code and not before.failed):
        raise PortError(f"not written: without the port, `{command}` exits with {before.code}: {before.end}")
    return before


def _importing(file: Path, python: str | None) -> str:
    """The command that imports a file as part of the package that it is in."""
    folder, names = file.parent, [file.stem] if file.stem != "__init__" else []
    while (folder / "__init__.py").is_file():
        folder, names = folder.parent, [folder.name, *names]
    return shlex.join([python or sys.executable, "-B", "-c", IMPORT, str(folder), ".".join(names)])


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


def broken(before: Tests, after: Tests, what: str = "the tests exit") -> str:
    """What the port broke, in one sentence; empty if nothing."""
    if after.code == 0:
        return ""
    names = sorted(after.failed - before.failed)
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return f"{fmt.plural(len(names), 'test')} broke: {', '.join(names[:SHOWN])}{more} (exit code {after.code})"
    if after.code != before.code:
        return f"{what} with {after.code}, before the port with {before.code}: {after.end}"
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
