"""The output stream: what its terminal supports, and what to do when it fails."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

import click


def obeys(stream: TextIO) -> bool:
    """Whether it is a terminal that supports escape sequences for clearing, moving and color."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


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
