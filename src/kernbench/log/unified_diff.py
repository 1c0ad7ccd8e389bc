"""Two versions of a file as a unified diff that `git apply` accepts: line endings are part of the lines."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator

NO_NEWLINE = "\\ No newline at end of file"


def unified(before: bytes | None, after: bytes | None, old: str, new: str, errors: str = "replace") -> Iterator[str]:
    """Lines without their newline, but with a carriage return if the file has one. None means that there is no file.

    `errors` says how to decode bytes that are not UTF-8, as for `bytes.decode`.
    """
    old, new = (name if data is not None else "/dev/null" for name, data in ((old, before), (new, after)))
    for line in difflib.unified_diff(_lines(before, errors), _lines(after, errors), old, new):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield NO_NEWLINE


def _lines(data: bytes | None, errors: str) -> list[str]:
    """Only a newline ends a line: a form feed or a lone carriage return is part of the text."""
    return list(io.StringIO((data or b"").decode("utf-8", errors), newline="\n"))
