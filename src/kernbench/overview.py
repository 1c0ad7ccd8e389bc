"""A project's tasks at a glance: best, last verdict and age of each. For the picker and `kernbench status`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness import taskfile
from harness.records import UserError
from kernbench import compare, iterations, project, render
from kernbench.journal import Journal


@dataclass(frozen=True)
class Overview:
    name: str
    folder: str
    iterations: int
    best: str
    last: str
    age: str
    stalled: bool = False
    problem: str | None = None
    """Why the task cannot be opened, if it cannot."""


def of(folder: Path, state: Path | None = None) -> Overview:
    try:
        task = taskfile.load(folder)
        journal = Journal(state or folder / project.STATE_FOLDER)
    except UserError as problem:
        return Overview(folder.name, str(folder), 0, render.DASH, "cannot be opened", render.DASH, problem=str(problem))
    if not journal.summaries:
        written = iterations.last_entry(folder / "ITERATIONS.md")
        if written is None:
            return Overview(task.name, str(folder), 0, render.DASH, "not run yet", render.DASH)
        return Overview(task.name, str(folder), written[0], render.DASH, "not run here yet", render.DASH)
    last = journal.summaries[-1]
    series = compare.series_of(journal.summaries, compare.Series.present(task, last))
    best = compare.best_of(series)
    return Overview(
        name=task.name,
        folder=str(folder),
        iterations=len(journal.iterations()),
        best=render.times(best.geomean) if best else render.DASH,
        last=f"{render.times(last.geomean)} {render.outcome(last)}" if last.geomean else render.outcome(last),
        age=render.age(last.at),
        stalled=last.stalled,
    )
