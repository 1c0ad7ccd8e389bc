"""`kernbench.history("rms_norm")`: every run of a task as a pandas frame, for a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.shared import taskfile
from kernbench.export.collect import Collected
from kernbench.log.runs.journal import Journal
from kernbench.task import lookup

if TYPE_CHECKING:
    import pandas


def history(task: str | Path | None = None, state: Path | None = None) -> pandas.DataFrame:
    """Every run of a task, named as on the command line; inside its folder it may be omitted."""
    folder = lookup.find_task(None if task is None else str(task), to_edit=False)
    return Collected(taskfile.load(folder), Journal(state or folder / lookup.STATE_FOLDER)).frame
