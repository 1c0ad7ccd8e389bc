"""Turns the offsets that a crashing worker prints (harness/load/native_stack.cpp) into files and lines.

Uses the first of the tools below that is installed; without one, the log says no more than before.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import shutil
from collections.abc import Sequence

from kernbench.machine import tool

MARK = "kernbench-native "
TOOLS = (["addr2line"], ["llvm-addr2line"], ["llvm-symbolizer", "--output-style=GNU"])
SECONDS = 5.0
_PLACE = re.compile(r"(?P<file>/[^\n]*):(?P<line>[1-9]\d*)(?: \(discriminator \d+\))?")
_THREAD = re.compile(r"Current thread .*\(most recent call first\):")


async def resolved(log: Sequence[str]) -> tuple[str, ...]:
    """The log with each offset as a frame of the thread that crashed, in the words of Python's fault handler."""
    marked = [line.removeprefix(MARK) for line in log if line.startswith(MARK)]
    others = [line for line in log if not line.startswith(MARK)]
    if not marked:
        return tuple(others)
    frames = await asyncio.to_thread(_frames, marked)
    place = next((index + 1 for index, line in enumerate(others) if _THREAD.match(line)), len(others))
    return (*others[:place], *frames, *others[place:])


def _frames(marked: Sequence[str]) -> list[str]:
    """One line per function, innermost first, also for one that was inlined; frames on one line are one."""
    command = next((words for words in TOOLS if shutil.which(words[0])), None)
    if command is None:
        return []
    pairs = [(image, offset) for offset, _space, image in (line.partition(" ") for line in marked)]
    found: list[str] = []
    for image, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        offsets = [f"0x{offset}" for _image, offset in group]
        with contextlib.suppress(tool.ToolError):
            told = tool.answer([*command, "-C", "-f", "-i", "-e", image, *offsets], SECONDS).splitlines()
            for name, line in zip(told[::2], told[1::2], strict=False):
                if place := _PLACE.fullmatch(line):
                    found.append(f'  File "{place["file"]}", line {place["line"]} in {name}')
    return [next(same) for _place, same in itertools.groupby(found, key=lambda line: line.partition(" in ")[0])]
