"""An exception in user code -> one sentence, a location in the user's files, and a traceback without harness frames.

Sources run from snapshots; `Paths` maps every text back to the folder that the user edits.
"""

from __future__ import annotations

import linecache
import os
import re
import traceback
from dataclasses import dataclass
from types import TracebackType

from harness.shared.errors import Where

SIDE_PREFIX = "_kb_"
_SIDE_NAME = re.compile(SIDE_PREFIX + r"[a-z]+_[0-9a-f]{8}\.?")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder of this package."""
_LONGEST = 400
"""Longer messages are cut; the traceback contains the full text."""


@dataclass(frozen=True)
class Failure:
    message: str
    where: Where | None
    traceback: str


class BadTask(Exception):
    """The task itself is unusable: the run ends, and no source is to blame."""

    def __init__(self, message: str, where: Where | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.where, self.traceback = where, traceback


class Paths:
    """Maps paths in snapshot folders back to the folder that the user edits."""

    def __init__(self, user_folder: str, *snapshots: str | None) -> None:
        self.user_folder = os.path.abspath(user_folder)
        known = {form for folder in snapshots if folder for form in (os.path.abspath(folder), os.path.realpath(folder))}
        self._snapshots = sorted(known - {self.user_folder}, key=len, reverse=True)

    def to_user(self, text: str) -> str:
        """The same text with the user's paths and plain module names."""
        for snapshot in self._snapshots:
            text = text.replace(snapshot, self.user_folder)
        return _SIDE_NAME.sub("", text)

    def relative(self, file: str) -> str | None:
        """The file's path relative to the user's folder; None if it is outside."""
        path = self.to_user(os.path.abspath(file))
        inside = path.startswith(self.user_folder + os.sep)
        return path[len(self.user_folder) + 1 :] if inside else None

    def short(self, text: str) -> str:
        """`to_user`, with paths inside the task folder made relative."""
        return self.to_user(text).replace(self.user_folder + os.sep, "")


def describe(problem: BaseException, paths: Paths) -> Failure:
    text = "".join(traceback.format_exception(type(problem), problem, _own_frames(problem.__traceback__)))
    text += str(getattr(problem, "output", ""))  # the compiler's full output
    return Failure(_message(problem, paths), _where(problem, paths), paths.to_user(text))


def _message(problem: BaseException, paths: Paths) -> str:
    if isinstance(problem, SystemExit):
        return f"it called sys.exit({problem.code!r})"
    if isinstance(problem, SyntaxError):
        return f"{type(problem).__name__}: {problem.msg}"
    lines = [line for line in str(problem).splitlines() if line.strip()]
    says = lines[-1 if hasattr(problem, "node") else 0] if lines else ""  # Triton prints the kernel first
    text = paths.short(says.strip())
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    if hasattr(problem, "file") and hasattr(problem, "line") and text:
        return text  # a compiler error is already a sentence
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _in_kernel(problem: BaseException, paths: Paths) -> Where | None:
    """Triton's compiler counts lines from the kernel's `def`, so find the kernel in the files on the stack."""
    source, line = getattr(problem, "src", None), getattr(getattr(problem, "node", None), "lineno", None)
    if not isinstance(source, str) or not source or not isinstance(line, int):
        return None
    for frame in traceback.extract_tb(problem.__traceback__):
        if paths.relative(frame.filename) is not None:
            text = "".join(linecache.getlines(frame.filename))
            start = text.find(source.rstrip("\n"))
            if start >= 0:
                return place(frame.filename, text.count("\n", 0, start) + line, paths)
    return None


def _where(problem: BaseException, paths: Paths) -> Where | None:
    if isinstance(problem, SyntaxError) and problem.filename:
        name = paths.relative(problem.filename)
        if name is not None:
            return Where(name, problem.lineno, (problem.text or "").strip() or None)
    file, line = getattr(problem, "file", None), getattr(problem, "line", None)
    if isinstance(file, str) and (line is None or isinstance(line, int)):
        return place(file, line, paths)
    found = _in_kernel(problem, paths)
    if found is not None:
        return found
    # Triton's interpreter raises at the launch; the cause is the error in the kernel.
    inner = problem.__cause__ if type(problem).__name__ == "InterpreterError" else None
    for frame in traceback.extract_tb((inner or problem).__traceback__):
        if paths.relative(frame.filename) is not None:
            found = place(frame.filename, frame.lineno, paths)
    return found


def place(file: str, line: int | None, paths: Paths) -> Where:
    """A location by its path, in the snapshot or in the user's folder, with the text of the line."""
    text = linecache.getline(file, line).strip() if line else ""
    return Where(paths.relative(file) or file, line, text or None)


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Drops the leading frames of this package."""
    while trace is not None and trace.tb_next is not None:
        if not os.path.abspath(trace.tb_frame.f_code.co_filename).startswith(_PACKAGE):
            break
        trace = trace.tb_next
    return trace
