"""A program's output, searched line by line for words that show that the program did not run as it should."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernbench.worker.log_limit import ESCAPES, LONGEST_LINE

SIGNALS = ("falling back to diffusers backend", "using diffusers backend", "loaded diffusers pipeline")
"""Said by serving software that did not run its own model; every log is searched for them."""
_END_OF_LINE = re.compile(rb"[\r\n]+")


class Log:
    """A command's output, line by line; only the last line is kept."""

    def __init__(self, signals: Sequence[str]) -> None:
        self._signals, self._rest, self._number = signals, b"", 0
        self.last = self.forbidden = ""

    def feed(self, chunk: bytes) -> None:
        *whole, self._rest = _END_OF_LINE.split(self._rest + chunk)
        if len(self._rest) > 1 << 16:  # no line of a log
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            self._take(ESCAPES.sub("", line.decode(errors="replace")))

    def end(self) -> None:
        self.feed(b"\n")

    def _take(self, line: str) -> None:
        self._number += 1
        self.last = line.strip()[:LONGEST_LINE] or self.last
        self.forbidden = self.forbidden or forbidden([line[: 1 << 12]], self._signals, self._number)


def forbidden(log: Sequence[str], signals: Sequence[str], first: int = 1) -> str:
    """The line of the log that shows that the model did not run as it should; empty if there is none."""
    for number, line in enumerate(log, first):
        if any(signal.lower() in line.lower() for signal in signals):
            return f'"{line.strip()}" (line {number} of its log)'
    return ""
