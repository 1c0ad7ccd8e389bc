"""Promotes a task's confirmed best from its worktree into the user's checkout: the solution's files and the log.

If you have changed the files since the campaign began, nothing is written; every step can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.errors import UserError
from kernbench.atomic_write import written_aside
from kernbench.campaign.task_tree import LOG, RUNS, TaskTree, digest
from kernbench.events import Summary
from kernbench.log import best as best_source
from kernbench.log import stored_sources
from kernbench.log.entries import entry_text
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import BEGIN, RunsFile
from kernbench.log.runs.series import best_of
from kernbench.log.stored_sources import StoredSource
from kernbench.task import lookup, snapshot


class NotPromoted(UserError):
    """Why a result stays on its branch; one sentence."""


@dataclass(frozen=True)
class Candidate:
    """A confirmed best that is not the source as it is."""

    summary: Summary
    point: StoredSource

    @property
    def words(self) -> str:
        """`#3: 1.42x ±0.4% over eager`."""
        number = self.summary.iteration
        name = f"#{number}" if number is not None else self.summary.source[:8]
        return f"{name}: {entry_text.speed(self.summary)} over {self.summary.baseline}"


def has_opponent(tree: TaskTree, device: str | None = None) -> bool:
    """Whether the source as it is was run on the device, the task's if None, over the task's baseline and, if it is
    right, the log has a confirmed best there for later ones to beat."""
    task, journal, start = tree.task(), Journal(tree.state), tree.start
    about = (start.source, start.task_hash, task.baseline)
    own = [run for run in journal.summaries if (run.source, run.task_hash, run.baseline) == about and run.complete]
    own = [run for run in own if run.environment.device.startswith(device or task.device)]
    if not any(run.right for run in own):
        return bool(own)
    return journal.best(best_source.present_series(task, journal, own[-1].environment)) is not None


def candidate(tree: TaskTree, known: Collection[str]) -> Candidate:
    """The best of the worktree's log; raises NotPromoted with why there is none to promote.

    `known` has the runs from before the agent's: one of them made the best that the agent had to beat.
    """
    if tree.is_moved:
        raise NotPromoted("a link has taken the place of the task's folder in the worktree")
    task = tree.task()
    if task.hash != tree.start.task_hash:
        raise NotPromoted("the task's own files were changed in the worktree, so its runs prove nothing")
    journal = Journal(tree.state)
    found = best_source.find(task, journal, stored_sources.entries_of(task))
    best = found.summary
    if best is None:
        raise NotPromoted(found.problem(task))
    if best.source == tree.start.source or best.local_run is not best:
        raise NotPromoted("nothing faster than the source as it is was confirmed")
    if not best.holds or found.is_unconfirmed:
        raise NotPromoted("its best is not confirmed")
    assert found.series is not None  # it is a run's
    made = journal.best(found.series)
    if made is not None and made.run in known:
        raise NotPromoted("nothing faster than the best before was confirmed")
    before = best_of([run for run in journal.series(found.series) if run.run in known])
    own = [run for run in journal.summaries if (run.source, run.task_hash) == (tree.start.source, task.hash)]
    if before is None and any(run.right for run in own):
        raise NotPromoted("the source as it is is right but was not confirmed, so its best had nothing to beat")
    return Candidate(best, stored_sources.point(journal, best))


def difference(tree: TaskTree, won: Candidate) -> str:
    task = tree.task()
    before = StoredSource("as-it-is", tree.state / "sources" / tree.start.source, tree.state)
    return "\n".join(stored_sources.diff(before, won.point, task)) + "\n"


def put_in_tree(tree: TaskTree, won: Candidate) -> None:
    """Makes the branch end with the best, whatever was tried last."""
    stored_sources.restore(tree.task(), won.point, tree.state)


def promote(tree: TaskTree, won: Candidate) -> str:
    """Writes the best to the user's checkout; returns what was written."""
    start, folder = tree.start, tree.user
    task = taskfile.load(folder)
    if task.hash != start.task_hash:
        raise NotPromoted("the task's own files changed in your checkout meanwhile")
    now = snapshot.sha_of(folder, tree.user_state, task.ignore)
    if now not in (start.source, won.summary.source):
        raise NotPromoted("the solution changed in your checkout meanwhile")
    changed: list[str] = []
    if now == start.source:
        lookup.make_state(tree.user_state)
        _before, changed = stored_sources.restore(task, won.point, tree.user_state)
    said = f"wrote {fmt.joined(changed)}" if changed else "the files are in place"
    return said + _log_comes_along(tree)


def _log_comes_along(tree: TaskTree) -> str:
    """The new runs, their sources and the entries; not if the log has changed here."""
    if (tree.folder / LOG).is_symlink():
        return f"; {LOG} is a link in the worktree, so the log stays there"
    added, here = (_after(state / RUNS, tree.start.runs) for state in (tree.state, tree.user_state))
    is_there = added in here
    entries = digest(tree.user / LOG)
    if (BEGIN.search(here) and not is_there) or entries not in (tree.start.log, digest(tree.folder / LOG)):
        return "; your log changed meanwhile, so the new entries are only on the branch"
    mine, theirs = (path.read_bytes() if path.is_file() else b"" for path in (tree.user / LOG, tree.folder / LOG))
    if not theirs.startswith(mine.rstrip()):
        return f"; {LOG} was edited in the worktree, so the log stays there"
    for source in (tree.state / "sources").iterdir():
        target = tree.user_state / "sources" / source.name
        if snapshot.is_whole(source) and not target.exists():
            snapshot.store(snapshot.read(source), target)
    if theirs:
        with written_aside(tree.user / LOG, theirs) as move:
            move()
    if not is_there:
        RunsFile(tree.user_state / RUNS).append(added.decode("utf-8", "replace").rstrip("\n"))
    return " and the log"


def _after(path: Path, offset: int) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()
