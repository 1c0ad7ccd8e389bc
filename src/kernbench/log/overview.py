"""A project's tasks at a glance: best, last verdict and age of each, for the picker and `kernbench status`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.errors import UserError
from kernbench import crash_report, render
from kernbench.events import Summary
from kernbench.log import best as best_source
from kernbench.log.entries import entry_text
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs.journal import Journal
from kernbench.task import lookup


@dataclass(frozen=True)
class Overview:
    name: str
    folder: str
    iterations: int
    """Run here or written in ITERATIONS.md."""
    best: str
    last: str
    age: str
    stalled: bool = False
    problem: str | None = None
    """Why the task cannot be opened, if it cannot."""


def of(folder: Path, state: Path | None = None) -> Overview:
    """Turns any problem into a row, so that the other tasks are still listed."""
    try:
        return _opened(folder, state or folder / lookup.STATE_FOLDER)
    except UserError as problem:
        return _unopened(folder, str(problem))
    except OSError as problem:
        return _unopened(folder, f"{problem.filename or folder}: {problem.strerror or problem}")
    except Exception as problem:
        return _unopened(folder, f"{folder}: {crash_report.sentence(problem)}")


def _unopened(folder: Path, problem: str) -> Overview:
    return Overview(folder.name, str(folder), 0, fmt.DASH, "cannot be opened", fmt.DASH, problem=problem)


def _opened(folder: Path, state: Path) -> Overview:
    task, journal = taskfile.load(folder), Journal(state)
    entries = PulledEntries(folder / "ITERATIONS.md")
    count = len(entries.iterations(journal))
    best = best_source.find(task, journal, entries).summary
    best_words = fmt.times(best.geomean) if best else fmt.DASH
    best_words += f" (#{best.iteration}, dropped)" if best and best.dropped else ""
    if not journal.summaries:
        said = "not run here yet" if count else "not run yet"
        return Overview(task.name, str(folder), count, best_words, said, fmt.DASH)
    last = next((run for run in reversed(journal.summaries) if run.complete), journal.summaries[-1])
    return Overview(
        name=task.name,
        folder=str(folder),
        iterations=count,
        best=best_words,
        last=_result(last, task.baseline),
        age=render.age(last.at),
        stalled=last.stalled,
    )


def _result(last: Summary, usual: str) -> str:
    """Words for the last complete run; if there is none, for the last run of some cases."""
    words = f"{fmt.times(last.geomean)} {render.outcome(last)}" if last.ratio else render.outcome(last)
    other = entry_text.over(last, usual)
    words = f"{words} {other}" if other else words
    return words if last.complete else f"{words} (some cases)"
