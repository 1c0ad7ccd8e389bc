"""Which sources go into a model: each task's best, its files now, or its reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.model_step import ModelFile, Patch
from harness.shared.task import Task
from kernbench.log import stored_sources
from kernbench.log.runs.journal import Journal
from kernbench.log.stored_sources import SourceError
from kernbench.task import lookup, snapshot
from kernbench.task.lookup import ProjectError

What = Literal["best", "now", "reference"]


def choose(
    model: ModelFile, wanted: Sequence[str], what: What | None, on_cpu: bool, state: Path | None = None
) -> tuple[list[Patch], list[str]]:
    """The sources, and notes about those that are not what one would expect; `state` replaces the tasks' own folders.

    Without `what`, the best, or the files now where there is none; on a CPU the reference of a task for GPUs, because
    Triton's interpreter truncates bf16 and cannot be timed.
    """
    patches: list[Patch] = []
    notes: list[str] = []
    for name, task in tasks(model, wanted).items():
        chosen: What = what or ("reference" if on_cpu and task.device != "cpu" else "best")
        try:
            patches.append(_patch(name, task, chosen, state))
        except SourceError as problem:
            if what is not None:
                raise
            patches.append(_patch(name, task, "now", state))
            notes.append(f"{name}: the files as they are now ({problem})")
    if what is None and any(patch.what == "reference" for patch in patches):
        notes.append("wiring only: no GPU here, so references stand in for the kernels; the times mean nothing")
    return patches, notes


def state_of(task_folder: Path, model: Path) -> Path:
    """Where lines about the task go: its own state folder or, if it is part of the installed package, the model's."""
    return model_state(model) if lookup.read_only(task_folder) else lookup.state_dir(task_folder)


def model_state(model: Path) -> Path:
    return lookup.state_dir(model, place_of(model))


def place_of(model: Path) -> Path:
    """Where lines about several tasks go; it may not exist yet."""
    own = model / lookup.STATE_FOLDER
    return Path.cwd() / lookup.STATE_FOLDER / "models" / model.name if lookup.read_only(model) else own


def tasks(model: ModelFile, wanted: Sequence[str]) -> dict[str, Task]:
    """The tasks named, or all that the model has a site for, by the name that the sites use."""
    found: dict[str, Task] = {}
    for given in wanted or model.tasks:
        task = taskfile.load(_find(given, model))
        name = next((name for name in (Path(task.folder).name, task.name) if name in model.tasks), None)
        if name is None:
            known = ", ".join(model.tasks)
            raise UserError(f"{model.name} has no site for {task.name}; it has sites for {known}")
        found[name] = task
    return found


def _find(name: str, model: ModelFile) -> Path:
    """From here or, for a model elsewhere, among the tasks next to its `models`."""
    try:
        return lookup.find_task(name, to_edit=False)
    except ProjectError:
        tasks_there = Path(model.folder).parents[1]
        if not (tasks_there / name / lookup.TASK_FILE).is_file():
            raise
        return tasks_there / name


def _patch(name: str, task: Task, what: What, own_state: Path | None) -> Patch:
    """The source is a snapshot: a save during the run changes nothing."""
    folder, build, micro = Path(task.folder), "", None
    if lookup.read_only(folder):
        what = "now" if what == "best" else what
        source, sha = folder, snapshot.sha_of(folder, folder / lookup.STATE_FOLDER)
    else:
        state = own_state or lookup.state_dir(folder)
        journal = Journal(state)
        if what == "best":
            found = stored_sources.find(task, journal, "best")
            source, sha = found.folder, found.summary.source if found.summary is not None else found.name
        else:
            taken = snapshot.take(folder, state, task)
            source, sha = taken.folder, taken.sha
        build = str(state / "build")
        micro = None if what == "reference" else _micro(journal, sha)
    return Patch(
        task=name,
        entry=task.entry,
        folder=str(source),
        user_folder=task.folder,
        file="reference.py" if what == "reference" else "solution.py",
        build=build,
        source=sha,
        what=what,
        micro=micro,
    )


def _micro(journal: Journal, source: str) -> float | None:
    """The geomean of the newest right run of this source."""
    runs = (run for run in reversed(journal.summaries) if run.source == source and run.ratio is not None)
    return next((run.geomean for run in runs), None)
