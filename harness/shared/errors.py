"""What a person is told when something is amiss: a sentence, and a place in their own files."""

from __future__ import annotations

from dataclasses import dataclass


class UserError(Exception):
    """What went wrong, where, and what to do, in one sentence: shown to the user as it is, never with a traceback."""


@dataclass(frozen=True)
class Where:
    """A place in the user's own files."""

    file: str
    """Relative to the task's folder where it lies inside it, else absolute."""
    line: int | None = None
    text: str | None = None
    """The line itself, stripped."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"
