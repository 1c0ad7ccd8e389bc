"""Errors shown to the user: one sentence, and a location in their files."""

from __future__ import annotations

from dataclasses import dataclass


class UserError(Exception):
    """One sentence: what went wrong, where, and what to do. Shown to the user as is, never with a traceback."""

    exit_code = 2


@dataclass(frozen=True)
class Where:
    """A location in the user's files."""

    file: str
    """Relative to the task folder if it is inside, otherwise absolute."""
    line: int | None = None
    text: str | None = None
    """The line itself, stripped."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"
