"""Which task the demo opens, and where: a GPU's if there is one, and a copy if the shipped tasks cannot be edited."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from kernbench.task import lookup, scaffold

ON_GPU, ON_CPU = "rms_norm", "softmax_host"


def name(has_gpu: bool) -> str:
    return ON_GPU if has_gpu and not _is_cpu_build() else ON_CPU


def _is_cpu_build() -> bool:
    """Whether this environment's torch cannot use a GPU; read from its version, since an import takes seconds."""
    try:
        return importlib.metadata.version("torch").endswith("+cpu")
    except importlib.metadata.PackageNotFoundError:  # another Python has it
        return False


def in_checkout(task: str) -> Path | None:
    """The task where it may be edited in place; None in an installed package."""
    folder = lookup.shipped_tasks().get(task)
    return folder if folder is not None and not lookup.read_only(folder) else None


def copy_in(folder: Path, task: str) -> Path | None:
    """The copy that an earlier demo has made in this folder."""
    places = (folder / task, folder / lookup.TASKS_FOLDER / task)
    return next((place for place in places if (place / lookup.TASK_FILE).is_file()), None)


def copy(task: str, folder: Path) -> Path:
    """Copy the shipped task, without its history, into this folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise lookup.ProjectError(f"cannot create {folder}: {problem.strerror or problem}") from None
    return scaffold.create(task, folder, source=lookup.shipped_tasks()[task])
