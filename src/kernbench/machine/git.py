"""Questions to git. Nothing is changed, not even the index."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20.0


@dataclass(frozen=True)
class Git:
    root: Path
    """Any folder inside the repository."""

    def ask(self, *words: str, seconds: float = SECONDS) -> str | None:
        """What git answers, without the last newline; None when it fails, hangs or is missing."""
        environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        command = ["git", "-C", str(self.root), *words]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=seconds, env=environment, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.rstrip("\n") if done.returncode == 0 else None
