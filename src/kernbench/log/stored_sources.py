"""Every iteration's sources: found by number, hash prefix or word, compared, and restored without losing anything."""

from __future__ import annotations

import contextlib
import os
import shlex
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.regular_file import read_bytes
from harness.shared.run_request import Environment
from harness.shared.task import Task
from harness.shared.used_files import NAMED_BASELINES, PARSED, task_files
from kernbench.atomic_write import written_aside
from kernbench.events import Summary
from kernbench.log import best as best_source
from kernbench.log import pruning, unified_diff
from kernbench.log.entries import entry_text
from kernbench.log.entries.entry_list import EntryList, key_of
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs.journal import Journal
from kernbench.task import snapshot
from kernbench.task.lookup import make_state
from kernbench.task.source_files import source_files

LEAST_DIGITS = 4
"""Shortest hash prefix that names a source."""
LARGEST = 1 << 28
"""Of a file in the task's folder, which may be larger than those of a source."""


class SourceError(UserError):
    """The requested source cannot be found or written; one sentence."""


@dataclass(frozen=True)
class StoredSource:
    """One source of the log; for `now`, `folder` is the task's folder."""

    name: str
    folder: Path
    state: Path
    """May be inside the folder; its contents are not part of the source."""
    summary: Summary | None = None


def find(
    task: Task, journal: Journal, reference: str, environment: Environment | None = None, l2: str = "cold"
) -> StoredSource:
    """`12`, `ab12cd`, `best`, `last` or `now`; the hash may also name a source that a restore kept."""
    if reference == "now":
        return StoredSource("now", Path(task.folder), journal.state)
    try:
        summary = summary_of(task, journal, reference, environment, l2)
    except SourceError:
        kept = kept_sources(journal.state, reference)
        if len(kept) != 1:
            raise
        return StoredSource(kept[0].name[:8], _whole(kept[0], kept[0].name[:8]), journal.state)
    return point(journal, summary) if summary.local_run is summary else _brought_along(task, journal, summary)


def kept_sources(state: Path, digits: str) -> list[Path]:
    """Snapshots whose hash begins with these digits."""
    if len(digits) < LEAST_DIGITS or not all(digit in string.hexdigits for digit in digits):
        return []
    return [folder for folder in (state / "sources").glob(f"{digits}*") if folder.is_dir()]


def point(journal: Journal, summary: Summary) -> StoredSource:
    folder = journal.state / "sources" / summary.source
    return StoredSource(_name(summary), _whole(folder, _name(summary)), journal.state, summary)


def _whole(folder: Path, name: str) -> Path:
    if not snapshot.is_whole(folder):
        raise SourceError(lost(folder, name))
    return folder


def lost(folder: Path, name: str) -> str:
    """Why a stored source cannot be used: it is not there, or its files are not those that it is named after."""
    if not folder.is_dir():
        return f"the source of {name} ({folder.name[:8]}) is not in this state folder ({folder.parents[1]})"
    what_to_do = "run the same files again to store them anew"
    return f"the stored source of {name} is damaged: files in {folder} are not what was run; {what_to_do}"


def _brought_along(task: Task, journal: Journal, summary: Summary) -> StoredSource:
    """A pulled log comes without its sources; the folder may hold the one that was shipped with it."""
    kept = kept_sources(journal.state, summary.source)
    if len(kept) == 1:
        return StoredSource(_name(summary), _whole(kept[0], _name(summary)), journal.state, summary)
    folder = Path(task.folder)
    if summary.source and snapshot.sha_of(folder, journal.state, task.ignore).startswith(summary.source):
        return StoredSource(_name(summary), folder, journal.state, summary)
    source = f"its source ({summary.source[: entry_text.HASH]})" if summary.source else "its source"
    place = f"this state folder ({journal.state})"
    raise SourceError(f"entry {_name(summary)} was not recorded here: {source} is not in {place}")


def diff(old: StoredSource, new: StoredSource, task: Task, errors: str = "replace") -> list[str]:
    """A unified diff over all files of two sources; `errors` says how to decode bytes that are not UTF-8."""
    names = {path.as_posix() for point in (old, new) for path in _files(point, task)}
    lines: list[str] = []
    for name in sorted(names):
        before, after = (_bytes(point.folder / name) for point in (old, new))
        lines += unified_diff.unified(before, after, f"{old.name}/{name}", f"{new.name}/{name}", errors)
    return lines


def restore(task: Task, point: StoredSource, state: Path) -> tuple[str, list[str]]:
    """Makes the solution's files those of the point, after keeping the current ones as a snapshot.

    Returns the hash of that snapshot and what changed, in words. Files that count in the code and that the point does
    not have are removed. The task's own files stay, and so do links and the files in a linked folder, which others may
    share; nothing is restored over a link to a file outside the task's folder. All files are written under temporary
    names before any is replaced, and a file that differs from its snapshot by then is neither replaced nor removed.
    """
    folder = Path(task.folder)
    make_state(state)
    before = snapshot.take(folder, state, task)
    fixed = frozen(task) | set(task_files(before.folder, task.baseline))
    wanted = {
        path: (point.folder / path).read_bytes() for path in solution_files(point, task) if path.as_posix() not in fixed
    }
    others = [path for path, data in wanted.items() if _bytes(folder / path) != data]
    changed = [path for path in others if not _is_behind_link(folder, path)]
    added = [path for path in _added(before.folder, wanted, fixed) if not _is_link(folder, path)]
    for path in changed:
        _must_stay_inside(folder, path)
    if changed or added:
        pruning.keep(state, before.sha)
    try:
        with contextlib.ExitStack() as stack:
            moves = [stack.enter_context(_aside(folder / path, wanted[path])) for path in changed]
            steps = [*zip(changed, moves, strict=True), *((path, (folder / path).unlink) for path in added)]
            for path, _put in steps:
                _must_be_kept(folder, before.folder, path, "nothing was restored")
            undo = f"`kernbench restore {before.sha[:8]}` undoes the partial restore"
            for path, put in steps:
                _must_be_kept(folder, before.folder, path, f"the restore stopped there: {undo}")
                put()
    except OSError as problem:
        raise SourceError(f"cannot write {problem.filename}: {problem.strerror}; fix that and restore again") from None
    linked = " (in a linked folder: unchanged)"
    words = [path.as_posix() + ("" if path in changed else linked) for path in others]
    return before.sha, words + [f"{path.as_posix()} (removed)" for path in added]


def _added(before: Path, wanted: Mapping[Path, bytes], fixed: set[str]) -> list[Path]:
    """Files of the snapshot that a restore would leave and that count in the code, before or after it."""
    present = snapshot.read(before)
    restored = {path.as_posix(): data for path, data in wanted.items()}
    counted = snapshot.code_files(present, fixed) | snapshot.code_files({**present, **restored}, fixed)
    return [Path(name) for name in sorted(counted - restored.keys())]


def _is_behind_link(folder: Path, path: Path) -> bool:
    """Whether the file is in a linked folder, which others may share."""
    return any((folder / parent).is_symlink() for parent in path.parents if parent.name)


def _is_link(folder: Path, path: Path) -> bool:
    return (folder / path).is_symlink() or _is_behind_link(folder, path)


def _must_stay_inside(folder: Path, path: Path) -> None:
    target = (folder / path).resolve()
    if not target.is_relative_to(folder.resolve()):
        where = f"{path} is a link to {target}, outside the task's folder"
        what_to_do = "remove the link, or replace it with a copy of that file, and restore again"
        raise SourceError(f"{where}; nothing was restored: {what_to_do}")


def _must_be_kept(folder: Path, kept: Path, path: Path, otherwise: str) -> None:
    if _bytes(folder / path) != _bytes(kept / path):
        raise SourceError(f"{path} was just saved or is too large to keep; {otherwise}")


def _aside(path: Path, data: bytes) -> contextlib.AbstractContextManager[Callable[[], None]]:
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    return written_aside(path, data)


def restored(
    point: StoredSource, before: str, changed: Sequence[str], task: str | None, state: Path | str | None = None
) -> str:
    """Describes a restore and how to undo it. `task` names the task in that command; None inside its folder.

    `state` is the state folder; None if it is the usual one.
    """
    if not changed:
        return f"restored {point.name}: no file changed"
    words = [*([task] if task else []), before[:8], *(["--state", str(state)] if state else [])]
    command = shlex.join(["kernbench", "restore", *words])
    return f"restored {point.name}: {', '.join(changed)}; `{command}` undoes this"


def copy_out(point: StoredSource, task: Task, target: Path) -> list[str]:
    """Writes the solution's files into a folder that does not have them yet; returns their names."""
    paths = solution_files(point, task)
    taken = [path for path in paths if os.path.lexists(target / path)]  # a dangling link would be written through
    if taken:
        raise SourceError(f"{target / taken[0]} already exists; choose another folder")
    try:
        for path in paths:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes((point.folder / path).read_bytes())
    except OSError as problem:
        raise SourceError(f"cannot write {problem.filename}: {problem.strerror}") from None
    return [path.as_posix() for path in paths]


def solution_files(point: StoredSource, task: Task) -> list[Path]:
    """Files of the source that are not the task's own, as paths relative to its folder."""
    return [path for path in _files(point, task) if path.as_posix() not in frozen(task)]


def _files(point: StoredSource, task: Task) -> list[Path]:
    if point.folder == Path(task.folder):
        return source_files(point.folder, point.state, task.ignore)
    return [Path(name) for name in snapshot.kept_files(point.folder)]


def texts(point: StoredSource, task: Task) -> dict[str, str]:
    """The solution's files by name."""
    found = {path.as_posix(): _bytes(point.folder / path) for path in solution_files(point, task)}
    return {name: (data or b"").decode("utf-8", "replace") for name, data in found.items()}


def summary_of(
    task: Task, journal: Journal, reference: str, environment: Environment | None = None, l2: str = "cold"
) -> Summary:
    """The run that a reference names; a PulledEntry if only ITERATIONS.md has it."""
    entries = entries_of(task)
    if reference == "last" and not journal.summaries:
        raise SourceError("no last run yet: nothing has been run on this machine")
    if reference in ("best", "last"):
        return journal.summaries[-1] if reference == "last" else _best(task, journal, entries, environment, l2)
    if reference == "now":
        raise SourceError(
            "`now` means the current files, not a run: `show now --source` prints them, `diff` compares them"
        )
    listed = entries.iterations(journal)
    if reference.isdecimal() and (found := listed.with_number(int(reference))):
        sources = {item.source[: entry_text.HASH] or "no source" for item in found}
        if len(sources) > 1:
            raise SourceError(f"{taken_twice(int(reference))}; give the hash of one: {', '.join(sorted(sources))}")
        return found[-1]
    matches = _with_hash(journal, listed, reference) if len(reference) >= LEAST_DIGITS else {}
    if len(matches) > 1:
        raise SourceError(f"{reference} matches {len(matches)} sources; give more of the hash")
    if matches:
        return next(iter(matches.values()))
    raise SourceError(f"no iteration {reference!r} here: {_known(listed)}; try best, last or a hash")


def taken_twice(number: int) -> str:
    return f"two entries are numbered {number}, probably from merging two logs"


def _with_hash(journal: Journal, listed: EntryList, digits: str) -> dict[str, Summary]:
    """By source, its newest run; a pulled entry if no run here is about it."""
    found = [run for run in journal.summaries if run.source.startswith(digits)]
    made = [run for run in found if run.iteration is not None]
    newest = {run.source: run for run in [*found, *made]}  # an entry wins over a plain run of its source
    shorts = {source[: entry_text.HASH] for source in newest}
    written = [item for item in listed.written if item.source.startswith(digits) and key_of(item)[1] not in shorts]
    return {**{item.source: item for item in written}, **newest}


def entries_of(task: Task) -> PulledEntries:
    return PulledEntries(Path(task.folder) / "ITERATIONS.md")


def _best(task: Task, journal: Journal, entries: PulledEntries, environment: Environment | None, l2: str) -> Summary:
    """The answer of log/best.py; raises if there is none."""
    found = best_source.find(task, journal, entries, environment, l2)
    if found.summary is None:
        raise SourceError(found.problem(task))
    return found.summary


def _known(listed: Sequence[Summary]) -> str:
    if not listed:
        return "none is logged yet"
    first, last = listed[0].iteration, listed[-1].iteration
    return f"the log has {first}" if first == last else f"the log has {first} to {last}"


def _name(summary: Summary) -> str:
    return str(summary.iteration) if summary.iteration is not None else summary.source[:8]


def frozen(task: Task) -> set[str]:
    """Files that belong to the task, not to the solution."""
    own = () if task.baseline in NAMED_BASELINES else (task.baseline,)
    return {*PARSED, "reference.py", *own, *task.own_files}


def _bytes(path: Path) -> bytes | None:
    try:
        return None if path.is_dir() else read_bytes(path, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
