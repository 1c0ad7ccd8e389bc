"""Files written whole or not at all, and never over something that is there unless that was asked for."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernbench.export.collect import ExportError


def write_all(files: Mapping[Path, str], force: bool) -> list[Path]:
    """Writes every file aside first, so that a full disk leaves none of them; returns their paths."""
    taken = [path for path in files if path.exists()]
    if taken and not force:
        raise ExportError(f"{taken[0]} is there already; `--force` overwrites it")
    aside: dict[Path, str] = {}
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            aside[path] = _write_aside(path, content)
        for path, scratch in aside.items():
            os.replace(scratch, path)
    except OSError as problem:
        place = problem.filename or next(iter(files))
        raise ExportError(f"{place} cannot be written: {problem.strerror}; nothing was exported") from None
    finally:
        for scratch in aside.values():
            with contextlib.suppress(OSError):
                os.unlink(scratch)
    return list(files)


def _write_aside(path: Path, content: str) -> str:
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".export-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(content)
        os.chmod(scratch, 0o644)
    except OSError:
        os.unlink(scratch)
        raise
    return scratch
