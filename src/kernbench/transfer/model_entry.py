"""The line that a model's row leaves in ITERATIONS.md, in the newest entry of the source that it is about."""

from __future__ import annotations

from pathlib import Path

from harness.shared.task import Task
from kernbench.log.entries import iterations_file
from kernbench.log.runs.journal import Journal
from kernbench.transfer import model_report
from kernbench.transfer.model_log import ModelLog
from kernbench.transfer.model_row import ModelRow


def add(task: Task, journal: Journal, row: ModelRow) -> None:
    """Adds it if the source has an entry; raises UserError if a person edited that."""
    source = ModelLog(task, journal.state).source_in(row)
    made = (run for run in reversed(journal.listed()) if source and run.source == source)
    entry = next((run for run in made if run.run not in journal.waiting), None)
    if entry is not None:
        iterations_file.add_model(Path(task.folder) / "ITERATIONS.md", entry, row.title, model_report.entry(row))
