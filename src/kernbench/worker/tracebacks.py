"""A traceback as the user wants it: without the frames of the harness, of the import system and of libraries.

Works on text, so that it serves what the worker raised and what its fault handler printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import harness

FIRST_LINES, LAST_LINES, LONGEST_LINE = 12, 18, 300
"""What is kept of a long one: every failed row carries its own."""
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+')
_HEAD = "Traceback (most recent call last):"
_STACK = "(most recent call first):"
_FATAL = "Fatal Python error:"
_LIBRARIES = re.compile(r"^<(?:frozen|string)|/lib(?:64)?/python3[^/]*/|/(?:site|dist)-packages/")
_HARNESS = os.path.dirname(os.path.abspath(harness.__file__)) + os.sep


def own(text: str) -> str:
    """The same traceback with the user's frames alone; its messages stay as they are."""
    kept = list(_own(text.splitlines()))
    # A headline whose frames are all gone says nothing.
    useful = (
        line
        for index, line in enumerate(kept)
        if line != _HEAD or (index + 1 < len(kept) and _FRAME.match(kept[index + 1]))
    )
    return "\n".join(useful).strip("\n")


def bounded(text: str) -> str:
    """The first and the last lines of a long text, each of bearable length."""
    lines = [line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..." for line in text.splitlines()]
    if len(lines) > FIRST_LINES + LAST_LINES:
        left_out = len(lines) - FIRST_LINES - LAST_LINES
        lines = [*lines[:FIRST_LINES], f"  ... {left_out} more lines ...", *lines[-LAST_LINES:]]
    return "\n".join(lines)


def fatal_stack(log: Iterable[str]) -> str:
    """What Python's fault handler printed of the thread that crashed, as it stands in a log; empty if it did not."""
    found: list[str] = []
    inside = False
    for line in log:
        if line.startswith(_FATAL):
            found = [line]  # a later one is the one that ended the process
        elif found and line.endswith(_STACK):
            inside = line.startswith("Current thread ")
        elif found and inside and _FRAME.match(line):
            found.append(line)
    return "\n".join(found)


def _own(lines: Iterable[str]) -> Iterator[str]:
    inside = foreign = False  # within a frame, and within one to be left out
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
