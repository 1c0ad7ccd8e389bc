"""Whether a source may leave for another repository: not if the newest row of a model and config about it is not kept.

`--anyway` overrules that, and leaves a line in runs.jsonl.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from harness.shared.lines import encode
from harness.shared.task import Task
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import RunsFile
from kernbench.transfer import model_report
from kernbench.transfer.model_log import ModelLog
from kernbench.transfer.model_row import ModelRow


@dataclass(frozen=True)
class ModelGate:
    """What models say of one source, as sentences."""

    source: str
    rows: tuple[ModelRow, ...]
    """The newest of each model and config that ran it."""
    missing: tuple[str, ...]
    """That no model ran it, or which ran another source instead."""

    @property
    def refused(self) -> tuple[ModelRow, ...]:
        return tuple(row for row in self.rows if not row.kept)

    @property
    def refusal(self) -> str:
        """What the models say that do not keep it."""
        return "; ".join(map(model_report.outcome, self.refused))

    @property
    def obstacle(self) -> str:
        """Why the source should stay, and what to do; empty if it may go."""
        return f"{self.refusal}; choose another source, or use --anyway" if self.refused else ""

    @property
    def remarks(self) -> list[str]:
        """What the others say, and which said nothing."""
        return [*(model_report.outcome(row) for row in self.rows if row.kept), *self.missing]

    def overrule(self, state: Path, doing: Literal["port", "pr"], target: str = "") -> None:
        """Writes down that the source left in spite of the models."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        said = [model_report.outcome(row) for row in self.refused]
        line = encode("overruled", at=now, doing=doing, source=self.source, target=target, said=said)
        RunsFile(state / "runs.jsonl").append(line)


def gate(task: Task, journal: Journal, source: str) -> ModelGate:
    log = ModelLog(task, journal.state)
    log.read()
    standing = log.standing(source)
    if standing.rows or standing.of_others:
        missing = [_of_another(task, journal, *item) for item in standing.of_others.items()]
    else:
        missing = [f"no model has run this source{_hint(task, list(log.models))}"]
    return ModelGate(source, standing.rows, tuple(missing))


def _of_another(task: Task, journal: Journal, model: str, source: str) -> str:
    number = journal.iteration_of(source)
    which = f"#{number}" if number is not None else source[:8]
    return f"{model} has not run this source: its row is about another one, {which}{_hint(task, [model])}"


def _hint(task: Task, models: Sequence[str]) -> str:
    if not models:
        return ""
    return f"; `{shlex.join(['kernbench', 'transfer', models[0], '--task', Path(task.folder).name])}` runs the best"
