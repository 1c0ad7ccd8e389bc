"""Internal errors: one sentence for the user, and the traceback in a file for a bug report.

The command line (cli.py), the engine and the screens (tui/safe_app.py) report unexpected exceptions here.
KERNBENCH_TRACEBACK=1 shows the traceback instead.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import traceback
from pathlib import Path

EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h; not 1, which means a wrong case."""
ASKED = "KERNBENCH_TRACEBACK"
_OURS = Path(__file__).parent


def is_asked_for() -> bool:
    return bool(os.environ.get(ASKED))


def sentence(problem: BaseException) -> str:
    what = " ".join(f"{type(problem).__name__}: {problem}".split())
    kept = _kept(problem)
    report = f"please report this, with the traceback from {kept}" if kept else f"{ASKED}=1 shows the traceback"
    return f"internal error: {what}{_where(problem)}; your log is intact; {report}"


def _where(problem: BaseException) -> str:
    """The innermost line in kernbench."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_OURS)] or frames
    if not ours:
        return ""
    path = Path(ours[-1].filename)
    name = path.relative_to(_OURS.parent) if path.is_relative_to(_OURS) else path
    return f" ({name}:{ours[-1].lineno})"


def _kept(problem: BaseException) -> str | None:
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(
            "w", prefix="kernbench-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write("".join(traceback.format_exception(problem)))
        return file.name
    return None
