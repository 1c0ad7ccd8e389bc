"""An exception in user code -> one sentence, a location in the user's files, and a traceback without harness frames.

Sources run from snapshots; `Paths` maps every text back to the folder that the user edits.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import re
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from harness import host
from harness.cuda import compiling
from harness.load.exception_text import (
    attribute,
    class_name,
    encodable,
    full_text,
    one_line,
    trace_of,
    written,
)
from harness.shared.errors import Where

SIDE_PREFIX = "_kb_"
_SIDE_NAME = re.compile(SIDE_PREFIX + r"[a-z]+_[0-9a-f]{8}\.?")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
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
    text = full_text(problem, _own_frames(trace_of(problem))) + encodable(_output(problem))
    error = where = None
    with contextlib.suppress(BaseException):  # of an attribute that is not what its name says
        error = _compilers(problem, paths)
        where = (error and error[1]) or _where(problem, paths)
    elsewhere = where is None or (error is None and _ends_elsewhere(problem, paths))
    return Failure(error[0] if error else _message(problem, paths), where, paths.to_user(text), elsewhere)


def _output(problem: BaseException) -> str:
    """What a program printed, such as a compiler, if the exception has it."""
    return "".join(attribute(problem, name, (str, bytes), "") for name in ("output", "stderr"))


def _compilers(problem: BaseException, paths: Paths) -> tuple[str, Where | None] | None:
    """The first error of a C++ or CUDA compiler in the exception's text or output, with its place in the user's files:
    of a text that the source made up, the place is the call that compiled it."""
    text = _COLORS.sub("", f"{written(problem)}\n{_output(problem)}")
    error = host.ERROR.search(text) or compiling.ERROR.search(text)
    if error is None or _names_its_place(problem):
        return None
    what, line = paths.short(error["what"].strip()), int(error["line"])
    for frame in _frames(problem, paths):  # a relative path is one from the source's folder
        file = os.path.join(os.path.dirname(frame.filename), error["file"])
        if os.path.isfile(file) and paths.relative(file) is not None:
            return one_line(what), place(file, line, paths)
    return one_line(f"{os.path.basename(error['file'])}:{line}: {what}"), None


def _frames(problem: BaseException, paths: Paths) -> list[traceback.FrameSummary]:
    """Those in the user's files, the innermost last."""
    frames = traceback.extract_tb(trace_of(problem))
    return [frame for frame in frames if paths.relative(frame.filename) is not None]


def _message(problem: BaseException, paths: Paths) -> str:
    name = class_name(problem)
    if issubclass(type(problem), SystemExit):
        code = written(attribute(problem, "code", object), representation=True)
        return one_line(f"it called sys.exit({'...' if code is None else code})")
    syntax = issubclass(type(problem), SyntaxError)
    says = written(attribute(problem, "msg", str, "") if syntax else problem)
    if says is None:
        return f"{name}, and its message cannot be read: __str__ raises"
    lines = [line.strip() for line in _COLORS.sub("", says).splitlines() if line.strip()]
    last = attribute(problem, "node", object, problem) is not problem  # Triton prints the kernel first
    shown = lines[-1:] if last else lines[: 2 if lines and lines[0].endswith(":") else 1]
    text = one_line(paths.short(" ".join(shown)))
    if text and _names_its_place(problem):
        return text.removeprefix("error: ")  # a compiler error is already a sentence
    if issubclass(type(problem), ModuleNotFoundError):
        text += f"; KERNBENCH_PYTHONPATH={_import_folder(paths)} puts a folder on the worker's sys.path"
    return one_line(f"{name}: {text}" if text else name)


def _import_folder(paths: Paths) -> str:
    """Of a captured task, the folder from which the program imported."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        lines = linecache.getlines(os.path.join(paths.user_folder, "capture.json"))
        return str(json.loads("".join(lines))["folder"] or "FOLDER")
    return "FOLDER"


def _names_its_place(problem: BaseException) -> bool:
    """Whether it has a file and `line`, as a compiler error has; the line may be None."""
    line = attribute(problem, "line", (int, type(None)), problem)
    return _file(problem) is not None and line is not problem


def _file(problem: BaseException) -> Any:
    """The name of the attribute is `filename` in CuTe DSL's errors."""
    return attribute(problem, "file", str) or attribute(problem, "filename", str)


def _in_kernel(problem: BaseException, paths: Paths) -> Where | None:
    """Triton's compiler counts lines from the kernel's `def`, so find the kernel in the files on the stack."""
    source, line = attribute(problem, "src", str), attribute(attribute(problem, "node", object), "lineno", int)
    if not source or line is None:
        return None
    for frame in _frames(problem, paths):
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
        return place(_file(problem), attribute(problem, "line", int), paths)
    found = _in_kernel(problem, paths)
    if found is not None:
        return found
    for frame in reversed(_FRAME.findall(written(problem) or "")):  # of a kernel that Helion or Dynamo was compiling
        if os.path.isfile(frame[0]) and paths.relative(frame[0]) is not None:
            return place(frame[0], int(frame[1]), paths)
    # Triton's interpreter raises at the launch; the cause is the error in the kernel.
    inner = problem.__cause__ if class_name(problem) == "InterpreterError" else None
    frames = _frames(inner or problem, paths)
    return place(frames[-1].filename, frames[-1].lineno, paths) if frames else None


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
