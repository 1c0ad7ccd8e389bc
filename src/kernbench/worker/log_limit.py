"""Prepares the kernel's output for a screen: bytes in, clipped lines out, a flood reduced to a count."""

from __future__ import annotations

import re

from harness.shared import format as fmt

ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")
"""Colors and cursor movements of terminals; noise here."""
LONGEST_LINE = 400
LINES_PER_SECOND = 200


class LogLimiter:
    """Keeps the first lines of every second and counts the rest; `now` is passed in for tests."""

    def __init__(self, lines_per_second: int = LINES_PER_SECOND, longest: int = LONGEST_LINE) -> None:
        self._allowed = lines_per_second
        self._longest = longest
        self._rest = b""
        self._second = -1
        self._used = 0
        self._dropped = 0
        self._dropped_bytes = 0

    def feed(self, chunk: bytes, now: float) -> list[str]:
        lines: list[str] = []
        if int(now) != self._second:
            lines += self._report()
            self._second, self._used = int(now), 0
        if self._used >= self._allowed:  # fast path during a flood: nothing is split
            self._dropped += chunk.count(b"\n")
            self._dropped_bytes += len(chunk)
            self._rest = b""
            return lines
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        room = self._allowed - self._used
        lines += [self._clip(line) for line in whole[:room]]
        self._used += len(whole)
        self._dropped += len(whole[room:])
        self._dropped_bytes += sum(map(len, whole[room:]))
        if len(self._rest) > self._longest:  # show an endless line clipped and drop its tail
            lines.append(self._clip(self._rest))
            self._used += 1
            self._rest = b""
        return lines

    @property
    def owes_a_report(self) -> bool:
        return self._dropped_bytes > 0

    def finish(self) -> list[str]:
        lines = [self._clip(self._rest)] if self._rest else []
        self._rest = b""
        return self._report() + lines

    def _report(self) -> list[str]:
        if not self._dropped_bytes:
            return []
        amount, unit = (
            (self._dropped_bytes / 1e6, "MB") if self._dropped_bytes >= 1e5 else (self._dropped_bytes / 1e3, "kB")
        )
        lines = "line" if self._dropped == 1 else "lines"
        text = f"... {self._dropped:,} more {lines} ({fmt.fixed(amount, 1)} {unit}) dropped"
        self._dropped = self._dropped_bytes = 0
        return [text]

    def _clip(self, line: bytes) -> str:
        text = ESCAPES.sub("", line[: self._longest * 4].decode("utf-8", "replace")).rstrip("\r")
        text = "".join(char if char.isprintable() or char == "\t" else "?" for char in text)
        return text if len(text) <= self._longest else text[: self._longest] + " ..."
