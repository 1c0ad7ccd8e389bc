"""Answers that read a task's folder and log, and run nothing: what there is, what was tried, what changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.task import Task
from harness.shared.used_files import LARGEST_FILE, PARSED
from kernbench import render
from kernbench.log import best as best_source
from kernbench.log import overview, stored_sources
from kernbench.log.entries import entry_text
from kernbench.log.runs.journal import Journal
from kernbench.mcp_server import source_writing
from kernbench.mcp_server.answers import (
    DiffAnswer,
    LogAnswer,
    RestoreAnswer,
    TaskAnswer,
    TaskState,
    Tried,
)

LONGEST_TEXT = 20_000
"""Characters of a file in an answer."""
LONGEST_DIFF = 400
"""Lines."""
LONGEST_LOG = 20
"""Entries, unless more are asked for."""
MOST_ENTRIES = 200


def task_state(folder: Path) -> TaskState:
    row = overview.of(folder)
    return TaskState(folder.name, row.iterations, row.best, row.last, row.age, row.stalled, row.problem or "")


def about(task: Task, state: Path) -> TaskAnswer:
    """What right means, and the solution as it is now."""
    folder = Path(task.folder)
    own = [name for name in (*PARSED, *task.own_files) if (folder / name).is_file()]
    now = stored_sources.texts(stored_sources.find(task, Journal(state), "now"), task)
    return TaskAnswer(
        task=folder.name,
        summary=task.summary,
        entry=task.entry,
        device=task.device,
        baseline=task.baseline,
        best=best_words(task, state),
        timed_cases=tuple(case.id for case in task.timed),
        other_cases=len(task.cases) - len(task.timed),
        task_files={name: _shortened(_text(folder / name)) for name in own},
        solution_files={name: _shortened(text) for name, text in now.items()},
    )


def best_words(task: Task, state: Path) -> str:
    """`#3: 1.42x ±0.4% over eager`, or why there is none."""
    found = best_source.find(task, Journal(state), stored_sources.entries_of(task))
    best = found.summary
    if best is None:
        return found.problem(task)
    name = f"#{best.iteration}" if best.iteration is not None else f"source {best.source[:8]}"
    unconfirmed = ", unconfirmed" if found.is_unconfirmed else ""
    return f"{name}: {entry_text.speed(best)} over {best.baseline or task.baseline}{unconfirmed}"


def logged(task: Task, state: Path, count: int = LONGEST_LOG) -> LogAnswer:
    if not 1 <= count <= MOST_ENTRIES:
        raise UserError(f"the log has no {count} entries to show; ask for 1 to {MOST_ENTRIES}")
    entries, older = tried(task, Journal(state), count)
    return LogAnswer(Path(task.folder).name, best_words(task, state), entries, older)


def tried(task: Task, journal: Journal, count: int, without: int | None = None) -> tuple[tuple[Tried, ...], int]:
    """The last entries, oldest first, and how many there are before them; `without` leaves one out."""
    listed = best_source.listing(task, journal, stored_sources.entries_of(task))
    entries = [entry for entry in listed if entry.iteration != without]
    shown = tuple(
        Tried(
            entry=entry.iteration or 0,
            outcome=best_source.outcome(listed, entry),
            geomean=entry_text.speed(entry),
            hypothesis=entry_text.title(entry) if entry.local_run is not entry else " ".join(entry.hypothesis.split()),
            source=entry.source[:8],
            age=render.age(entry.at),
            next_step=" ".join(entry.next.split()),
            stalled=entry.stalled,
            is_best_now=listed.is_best_now(entry),
        )
        for entry in entries[-count:]
    )
    return shown, max(len(entries) - count, 0)


def difference(task: Task, state: Path, old: str, new: str) -> DiffAnswer:
    journal = Journal(state)
    before, after = (stored_sources.find(task, journal, word) for word in (old, new))
    lines = stored_sources.diff(before, after, task)
    shown = lines[:LONGEST_DIFF]
    return DiffAnswer(Path(task.folder).name, before.name, after.name, "\n".join(shown), len(lines) - len(shown))


def restored(task: Task, state: Path, reference: str) -> RestoreAnswer:
    if reference == "now":
        raise UserError("`now` is what the files are already; restore an entry's number, best, last or a hash")
    point = stored_sources.find(task, Journal(state), reference)
    for path in stored_sources.solution_files(point, task):
        if path.as_posix() not in stored_sources.frozen(task):  # these stay as they are
            source_writing.may_write(task, path.as_posix(), (point.folder / path).read_bytes())
    before, changed = stored_sources.restore(task, point, state)
    name = Path(task.folder).name
    what = fmt.joined(changed) if changed else "no file changed"
    return RestoreAnswer(name, f"restored {point.name}: {what}", tuple(changed), before[:8] if changed else "")


def _text(path: Path) -> str:
    try:
        return read_bytes(path, LARGEST_FILE).decode("utf-8", "replace")
    except (OSError, NotRegular) as problem:
        return f"({problem})"


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n... ({len(text) - LONGEST_TEXT} more characters)"


def last_lines(lines: Iterable[str], count: int, width: int) -> tuple[str, ...]:
    """The end of what a kernel printed; a long line is cut."""
    return tuple(line if len(line) <= width else f"{line[:width]}..." for line in list(lines)[-count:])
