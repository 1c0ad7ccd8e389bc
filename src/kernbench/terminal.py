"""What is at the other end of the output: what it can do, and what is left to say when it takes nothing more."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click


def obeys(stream: TextIO) -> bool:
    """Whether it is a terminal that knows the sequences which clear a line, move about and colour."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def silence(problem: OSError) -> None:
    """A full disk under the output, say: what is still to be written goes nowhere, one sentence where it can."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        said = f"the output cannot be written: {problem.strerror or problem}; what has ended is in the log"
        click.echo(f"kernbench: {said}", err=True)
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())
