"""What models say about a task's sources: the `model` lines of runs.jsonl.

A line about one task is in the task's own file, one about several in the model's. A row for which the task's reference
stood in says nothing about a source.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.shared.lines import UNREADABLE, decode_checked
from harness.shared.model_step import Patch
from harness.shared.task import Task
from harness.shared.taskfile.values import TaskError
from kernbench.log.runs.runs_file import RunsFile, parse
from kernbench.transfer import model_file, model_sources
from kernbench.transfer.model_row import ModelRow

MODEL = b'{"event":"model"'


@dataclass(frozen=True)
class Standing:
    """What models say of one source."""

    rows: tuple[ModelRow, ...] = ()
    """The newest of each model and config that ran it."""
    of_others: Mapping[str, str] = field(default_factory=dict)
    """The other models, each with the source that it ran last."""


class ModelLog:
    def __init__(self, task: Task, state: Path) -> None:
        self._names = {Path(task.folder).name, task.name}
        self._folder = Path(task.folder)
        self._files = {state: 0}
        """Folders of runs, each with the offset up to which it was read."""
        self._rows: list[ModelRow] = []

    @functools.cached_property
    def models(self) -> dict[str, Path]:
        """The models that have a site for the task, by name; one whose model.toml has a mistake is left out."""
        found = {**model_file.models(), **model_file.models(self._folder)}
        return {name: folder for name, folder in found.items() if self._has_site(folder)}

    def read(self) -> None:
        """Reads what was added since."""
        for folder in self.models.values():
            self._files.setdefault(model_sources.place_of(folder), 0)
        for state, begin in self._files.items():
            for place, line in RunsFile(state / "runs.jsonl").scan(begin, rows=False):
                if line.endswith(b"\n"):
                    self._files[state] = place + len(line)
                if line.startswith(MODEL) and (row := _decoded(line)) and self.source_in(row):
                    self._rows.append(replace(row, images=_beside(state, row.images), dumps=_beside(state, row.dumps)))

    def source_in(self, row: ModelRow) -> str:
        """The source of this task that the row is about; empty if it is about none."""
        return next((patch.source for patch in self._patches(row)), "")

    def newest(self) -> list[ModelRow]:
        """The newest row of each model and config, whatever source it is about."""
        return list(self._by_model().values())

    def standing(self, source: str) -> Standing:
        own = self._by_model(source)
        models = {model for model, _config in own}
        others = {model: self.source_in(row) for (model, _), row in self._by_model().items() if model not in models}
        return Standing(tuple(own.values()), others)

    def _by_model(self, source: str = "") -> dict[tuple[str, str], ModelRow]:
        """Of two rows of one command, the one with this task alone says more about it."""
        found = [row for row in self._rows if self.source_in(row).startswith(source)]
        in_order = sorted(found, key=lambda row: (row.at, len(row.sources) == 1))
        newest = {(row.model, row.config): row for row in in_order}
        return dict(sorted(newest.items()))

    def _patches(self, row: ModelRow) -> Iterator[Patch]:
        return (patch for patch in row.sources if patch.task in self._names and patch.what != "reference")

    def _has_site(self, folder: Path) -> bool:
        try:
            return bool(self._names & model_file.tasks_of(folder))
        except (TaskError, OSError):
            return False


def _beside(state: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """Files are next to the log."""
    return tuple(str(state / Path(name).name) for name in names)


def _decoded(line: bytes) -> ModelRow | None:
    """None if it is torn, of a newer version or forged: files are named after the model."""
    try:
        row = decode_checked(ModelRow, parse(line))
    except UNREADABLE:
        return None
    return row if row.model == Path(row.model).name else None
