"""Trims tracebacks to the user's frames: without those of the harness, the import system and libraries.

Works on text, so that it applies to exceptions of the worker and to the output of its fault handler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import harness
from harness.shared import format as fmt

FIRST_LINES, LAST_LINES, LONGEST_LINE = 12, 18, 300
"""What is kept of a long traceback: every failed row has one."""
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+')
_HEAD = "Traceback (most recent call last):"
_STACK = "(most recent call first):"
_FATAL = "Fatal Python error:"
_LIBRARIES = re.compile(r"^<(?:frozen|string)|/lib(?:64)?/python3[^/]*/|/(?:site|dist)-packages/")
_HARNESS = os.path.dirname(os.path.abspath(harness.__file__)) + os.sep


def own(text: str) -> str:
    """The traceback with only the user's frames; its messages do not change."""
    kept = list(_own(text.splitlines()))
    # Drop a headline without frames.
    useful = (
        line
        for index, line in enumerate(kept)
        if line != _HEAD or (index + 1 < len(kept) and _FRAME.match(kept[index + 1]))
    )
    return "\n".join(useful).strip("\n")


def bounded(text: str) -> str:
    """The first and last lines of a long text, each cut to a maximum length."""
    lines = [line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..." for line in text.splitlines()]
    if len(lines) > FIRST_LINES + LAST_LINES:
        left_out = len(lines) - FIRST_LINES - LAST_LINES
        lines = [*lines[:FIRST_LINES], f"  ... {fmt.plural(left_out, 'more line')} ...", *lines[-LAST_LINES:]]
    return "\n".join(lines)


def last_stack(log: Iterable[str]) -> str:
    """The fault handler's stack of the thread that crashed or hangs, from a log; empty if there is none."""
    found: list[str] = []
    inside = False
    for line in log:
        if line.startswith(_FATAL):
            found, inside = [line], False  # the last one ended the process
        elif line.endswith(_STACK):
            inside = line.startswith("Current thread ")
            if inside:
                found = [line for line in found[:1] if line.startswith(_FATAL)]
        elif inside and _FRAME.match(line):
            found.append(line)
    return "\n".join(found)


def waits_for_gpu(stack: str) -> bool:
    """Whether the innermost frame is torch's wait for all kernels to end."""
    return re.match(r'  File "[^"]*/torch/cuda/__init__\.py", line \d+ in synchronize\b', stack) is not None


def _own(lines: Iterable[str]) -> Iterator[str]:
    inside = foreign = False  # inside a frame, and inside one to drop
    for line in lines:
        found = _FRAME.match(line)
        if found:
            inside, foreign = True, _is_foreign(found["file"])
        elif inside and not line.startswith(("    ", "  [Previous line repeated")):
            inside = foreign = False
        if not foreign:
            yield line


def _is_foreign(file: str) -> bool:
    return file.startswith(_HARNESS) or _LIBRARIES.search(file) is not None
