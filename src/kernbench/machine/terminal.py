"""What is at the other end of the output: what it can do, and what is left to say when it takes nothing more."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

import click


def obeys(stream: TextIO) -> bool:
    """Whether it is a terminal that knows the sequences which clear a line, move about and colour."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def forget_exported_size() -> None:
    """COLUMNS and LINES in the environment, as from `docker exec -e COLUMNS=...`, would hold through every resize."""
    with contextlib.suppress(OSError, ValueError):
        if all(os.get_terminal_size(sys.stdout.fileno())):  # one that knows its size; others say 0
            os.environ.pop("COLUMNS", None)
            os.environ.pop("LINES", None)


def silence(problem: OSError) -> None:
    """A full disk under the output, say: what is still to be written goes nowhere, one sentence where it can."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        said = f"the output cannot be written: {problem.strerror or problem}; what has ended is in the log"
        click.echo(f"kernbench: {said}", err=True)
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())
