"""What a run is compared with: the reference as it is (eager), compiled, the best source so far, or a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from harness.records.errors import UserError
from harness.taskfile import NAMED_BASELINES, files_behind


class BaselineError(UserError):
    """The baseline asked for cannot be used; one sentence."""


@dataclass(frozen=True)
class Baseline:
    name: str
    """As logs and series name it; a file from elsewhere carries its hash."""
    file: Path | None = None

    @classmethod
    def parse(cls, text: str, task_folder: Path) -> Baseline:
        if text in (*NAMED_BASELINES, "best") or (task_folder / text).is_file():
            return cls(text)
        path = Path(text).expanduser().resolve()
        if not path.is_file():
            raise BaselineError(f"baseline {text!r} is neither eager, compile, best nor a file")
        return cls(f"{path.name}@{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}", path)

    def for_worker(self, best: str | None) -> str:
        """What the request carries: a name, a file of the snapshot, or an absolute path."""
        if self.name == "best" and best is None:
            raise BaselineError("there is no best yet to compare with; run once with another baseline")
        return str(self.file) if self.file else self.name

    def digest(self, source: Path, best: str | None) -> str:
        """Hash of what is timed as the baseline: a file, the reference behind eager and compile, or the best source."""
        if self.name == "best":
            return best or ""
        own = self.file or source / ("reference.py" if self.name in NAMED_BASELINES else self.name)
        names = [own.name] if self.name in NAMED_BASELINES else files_behind(own.parent, own.name)
        try:
            return hashlib.sha256(b"".join((own.parent / name).read_bytes() for name in names)).hexdigest()
        except OSError:
            return ""
