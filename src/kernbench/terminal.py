"""What the terminal at the other end can do."""

from __future__ import annotations

import os
from typing import TextIO


def obeys(stream: TextIO) -> bool:
    """Whether it is a terminal that knows the sequences which clear a line, move about and colour."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"
