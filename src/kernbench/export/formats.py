"""The formats of an export, by name and in words. What makes each is in `_maker` of this package.

Light on purpose: the command line and the screen list the formats without importing what makes them.
"""

from __future__ import annotations

from harness.shared.errors import UserError

FORMATS = {
    "md": "markdown",
    "csv": "every row of every iteration",
    "json": "the same for programs",
    "html": "one page with charts",
    "pr": "a folder for a pull request",
}


class ExportError(UserError):
    """The log cannot be exported; one sentence."""
