"""What a session is asked to do: its options, the supervisor they ask for, and a job (a save, a key, a command); and
why a job ran nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from harness.shared.errors import UserError, Where
from harness.shared.task import Task
from harness.shared.taskfile.values import TaskError
from kernbench import crash_report
from kernbench.events import BuildFailed, Event
from kernbench.worker.deadlines import Deadlines
from kernbench.worker.supervisor import Supervisor


@dataclass(frozen=True)
class Options:
    device: str | None = None
    python: str | None = None
    baseline: str | None = None
    case: str | None = None
    """Pattern for ids and labels; a run of only some cases never becomes best."""
    grid: bool = False
    """Run all grid cases instead of a sample."""
    poll: bool = False
    budget_ms: float = 100.0
    condition: Literal["cold", "warm", "dirty"] = "cold"
    """State of the L2 before every timed call on a GPU."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    harness: Path | None = None
    """Replaces the measuring half in the engine's tests."""
    spares: bool = True
    confirm: bool = True
    """Confirm a run that would be best in a new worker; else it stays `best?`."""
    floors: bool = True
    standby: bool = True
    """Keep an ncu on standby while nothing is timed."""
    ncu: str | None = None
    """Use this ncu instead of the one on PATH."""
    has_keys: bool = True
    """Whether the user can press keys such as r: only on the screen."""
    quick: bool = False
    """Only the quick checks, on one seed: such a run never becomes best."""
    worker: SharedWorker | None = None
    """Used by several sessions, one after the other, which leave it running."""
    source: Path | None = None
    """A folder with the source to run instead of the task's own, such as the best variant of a sweep."""
    tried: str = ""
    """What a sweep tried, for its entry: Markdown lines."""


class SharedWorker:
    """A supervisor that outlives a session; what it says goes to the session that has it."""

    def __init__(self) -> None:
        self._supervisor: Supervisor | None = None
        self._listener: Callable[[Event], None] = lambda event: None

    def lent(self, task: Task, options: Options, emit: Callable[[Event], None]) -> Supervisor:
        self._listener = emit
        if self._supervisor is None:
            own = replace(options, worker=None, spares=False)
            self._supervisor = supervisor_for(task, own, lambda event: self._listener(event))
        return self._supervisor

    async def close(self) -> None:
        if self._supervisor is not None:
            await self._supervisor.close()


def supervisor_for(task: Task, options: Options, emit: Callable[[Event], None]) -> Supervisor:
    if options.worker is not None:
        return options.worker.lent(task, options, emit)
    return Supervisor(
        device=options.device or ("cpu" if task.device == "cpu" else "auto"),
        emit=emit,
        python=options.python,
        threads=task.threads if task.device == "cpu" else None,
        deadlines=options.deadlines,
        harness=options.harness,
        spares=options.spares,
        confirms=options.confirm,
    )


@dataclass(frozen=True)
class Job:
    reason: Literal["save", "key", "command", "open"]
    at: float
    """Monotonic time of the save, key or command."""
    iteration: bool
    """Writes an entry to ITERATIONS.md if it builds and runs; on opening, only for a source without an entry."""
    is_asked: bool = False
    """A key asked for this pending save: it is timed now, even while paused or if only comments changed."""


# Why a job ran nothing. Unlike a notice this stays on the screen, because the rows shown belong to older files or to a
# run that broke down.


def bad_task(problem: TaskError, folder: Path) -> BuildFailed:
    said = f"{problem.key}: {problem.problem}" if problem.key else problem.problem
    try:
        where = Where(str(problem.file.relative_to(folder.resolve())))
    except ValueError:
        return BuildFailed("", "", str(problem), status="bad_task")
    return BuildFailed("", "", said, where, status="bad_task")


def broken_down(problem: Exception, state: Path) -> BuildFailed:
    if isinstance(problem, UserError):
        said = f"{problem}; fix that and try again"
    elif isinstance(problem, OSError):
        place = f"{problem.filename or state}: {problem.strerror}"
        said = f"nothing was run: {place}; fix that and try again"
    else:
        said = crash_report.sentence(problem)
    return BuildFailed("", "", said)
