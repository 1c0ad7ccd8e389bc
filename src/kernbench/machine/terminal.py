"""The output streams: only text leaves them; what their terminal supports, and what to do when one fails."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from typing import TextIO

import click

from kernbench.machine.plain_text import plain


class PlainStream(io.TextIOWrapper):
    """A stream whose every write is plain text: of a command, of click, of a traceback.

    Text that it cannot encode is escaped, never an error. click bypasses a stream that is set to ASCII, so such a
    stream gets UTF-8, as click would give it.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        encoding = "utf-8" if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding
        super().__init__(stream.buffer, encoding, "backslashreplace", line_buffering=stream.line_buffering)
        self._replaced = stream  # its end would close the buffer

    def write(self, text: str) -> int:
        super().write(plain(text))
        return len(text)

    def control(self, codes: str) -> None:
        super().write(codes)


def print_only_text() -> None:
    """For the rest of the process, on stdout and stderr. What is printed to one that is closed goes nowhere."""
    for number, name in enumerate(("stdout", "stderr"), 1):
        stream = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            os.set_inheritable(number, True)
            stream = os.fdopen(number, "w", encoding="utf-8")
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, PlainStream):
            stream.flush()
            setattr(sys, name, PlainStream(stream))


def control(stream: TextIO, codes: str) -> None:
    """Send our own codes (a color, the start of the line) to a stream that removes those of others."""
    if isinstance(stream, PlainStream):
        stream.control(codes)
    else:
        stream.write(codes)


def obeys(stream: TextIO) -> bool:
    """Whether it is a terminal that supports escape sequences for clearing, moving and color."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def clear_line(stream: TextIO) -> None:
    """Remove a passing message, or the ^C that a terminal shows for ctrl+c, from the line that comes next."""
    if obeys(stream):
        control(stream, "\r\x1b[2K")
        stream.flush()


def forget_exported_size() -> None:
    """Drop COLUMNS and LINES, e.g. from `docker exec -e COLUMNS=...`: they would override every resize."""
    with contextlib.suppress(OSError, ValueError):
        if all(os.get_terminal_size(sys.stdout.fileno())):  # some terminals report 0
            os.environ.pop("COLUMNS", None)
            os.environ.pop("LINES", None)


def silence(problem: OSError) -> None:
    """The output failed, e.g. on a full disk: discard the rest and print one sentence if possible."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        said = f"cannot write the output: {problem.strerror or problem}; finished runs are in the log"
        click.echo(f"kernbench: {said}", err=True)
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())
