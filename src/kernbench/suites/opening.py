"""`kernbench level1/19_ReLU.py`: a problem's file opens as a task, which is made in this folder the first time."""

from __future__ import annotations

import sys
from pathlib import Path

from kernbench.machine.telemetry import MachineReader
from kernbench.task import lookup


def task_folder(task: str | None, to_edit: bool = True) -> Path:
    """The folder of the task that a word names, or that is made of the problem that it names."""
    path = Path(task or "")
    if not task or not path.exists() or _is_in_task(path):
        return lookup.find_task(task, to_edit=to_edit)
    from kernbench.suites import imported_task, problems  # the forms of other suites: most tasks need none
    from kernbench.suites.formats.foreign_problem import Form

    problem = problems.detect(path)
    if problem is None:
        return lookup.find_task(task, to_edit=to_edit)
    folder, device = Path.cwd() / problem.name, device_here()
    is_new = not folder.exists()
    imported_task.write(problem, folder, Form(device=device))
    if is_new:
        for_cpu = " for the CPU, because no GPU is here" if device == "cpu" else ""
        said = f"made {folder.name}, a task of {problem.title}{for_cpu}; edit {problem.edited} there"
        print(said, file=sys.stderr)
    return folder


def device_here() -> str:
    """What a task made here is for."""
    return "cuda" if MachineReader().read().gpus else "cpu"


def _is_in_task(path: Path) -> bool:
    path = path.absolute()
    return any((place / lookup.TASK_FILE).is_file() for place in (path, *path.parents))
