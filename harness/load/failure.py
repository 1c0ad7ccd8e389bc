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

from harness.load.exception_text import attribute, class_name, encodable, full_text, one_line, trace_of, written
from harness.shared.errors import Where

SIDE_PREFIX = "_kb_"
_SIDE_NAME = re.compile(SIDE_PREFIX + r"[a-z]+_[0-9a-f]{8}\.?")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder of this package."""


@dataclass(frozen=True)
class Failure:
    message: str
    where: Where | None
    traceback: str
    elsewhere: bool = False
    """It was raised in code that is not the user's: what an earlier source did to the process may be the cause."""


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
    """Never raises, whatever the exception is."""
    text = full_text(problem, _own_frames(trace_of(problem)))
    text += encodable(attribute(problem, "output", str, ""))  # the compiler's full output
    try:
        where = _where(problem, paths)
    except BaseException:  # of an attribute that is not what its name says
        where = None
    return Failure(
        _message(problem, paths), where, paths.to_user(text), where is None or _ends_elsewhere(problem, paths)
    )


def _message(problem: BaseException, paths: Paths) -> str:
    name = class_name(problem)
    if issubclass(type(problem), SystemExit):
        code = written(attribute(problem, "code", object), representation=True)
        return one_line(f"it called sys.exit({'...' if code is None else code})")
    syntax = issubclass(type(problem), SyntaxError)
    says = written(attribute(problem, "msg", str, "") if syntax else problem)
    if says is None:
        return f"{name}, and its message cannot be read: __str__ raises"
    lines = [line for line in says.splitlines() if line.strip()]
    last = attribute(problem, "node", object, problem) is not problem  # Triton prints the kernel first
    text = one_line(paths.short(lines[-1 if last else 0].strip())) if lines else ""
    if text and _names_its_place(problem):
        return text  # a compiler error is already a sentence
    return one_line(f"{name}: {text}" if text else name)


def _names_its_place(problem: BaseException) -> bool:
    """Whether it has `file` and `line`, as a compiler error has; the line may be None."""
    line = attribute(problem, "line", (int, type(None)), problem)
    return attribute(problem, "file", str) is not None and line is not problem


def _in_kernel(problem: BaseException, paths: Paths) -> Where | None:
    """Triton's compiler counts lines from the kernel's `def`, so find the kernel in the files on the stack."""
    source, line = attribute(problem, "src", str), attribute(attribute(problem, "node", object), "lineno", int)
    if not source or line is None:
        return None
    for frame in traceback.extract_tb(trace_of(problem)):
        if paths.relative(frame.filename) is not None:
            text = "".join(linecache.getlines(frame.filename))
            start = text.find(source.rstrip("\n"))
            if start >= 0:
                return place(frame.filename, text.count("\n", 0, start) + line, paths)
    return None


def _where(problem: BaseException, paths: Paths) -> Where | None:
    if issubclass(type(problem), SyntaxError):
        name = paths.relative(attribute(problem, "filename", str, "") or os.devnull)
        if name is not None:
            text = one_line(attribute(problem, "text", str, "").strip())
            return Where(one_line(name), _line(attribute(problem, "lineno", int)), text or None)
    if _names_its_place(problem):
        return place(attribute(problem, "file", str), attribute(problem, "line", int), paths)
    found = _in_kernel(problem, paths)
    if found is not None:
        return found
    # Triton's interpreter raises at the launch; the cause is the error in the kernel.
    inner = problem.__cause__ if class_name(problem) == "InterpreterError" else None
    for frame in traceback.extract_tb(trace_of(inner or problem)):
        if paths.relative(frame.filename) is not None:
            found = place(frame.filename, frame.lineno, paths)
    return found


def _ends_elsewhere(problem: BaseException, paths: Paths) -> bool:
    if issubclass(type(problem), (SyntaxError, ImportError)) or _names_its_place(problem):
        return False
    frames = traceback.extract_tb(trace_of(problem))
    return bool(frames) and paths.relative(frames[-1].filename) is None


def place(file: str, line: int | None, paths: Paths) -> Where:
    """A location by its path, in the snapshot or in the user's folder, with the text of the line."""
    line = _line(line)
    text = one_line(linecache.getline(file, line).strip()) if line else ""
    return Where(one_line(paths.relative(file) or file), line, text or None)


def _line(number: int | None) -> int | None:
    """A line that a file can have; an exception may name any number."""
    return number if number is not None and 0 < number < 1 << 31 else None


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Drops the leading frames of this package."""
    while trace is not None and trace.tb_next is not None:
        if not os.path.abspath(trace.tb_frame.f_code.co_filename).startswith(_PACKAGE):
            break
        trace = trace.tb_next
    return trace
