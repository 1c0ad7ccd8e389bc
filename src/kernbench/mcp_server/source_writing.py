"""Writes a file of a task's solution, and nothing else: not the task's own files, nothing outside, nothing over a link.

A new file can change a task without touching any of its files: `torch.py` next to a reference that imports torch, or a
`baseline.py` where task.toml names no baseline. So the task is read from a copy made of links, with the new file in it,
before anything is written; if it would be another task, nothing is.
"""

from __future__ import annotations

import os
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.task import Task
from harness.shared.taskfile.values import TaskError
from harness.shared.used_files import LARGEST_FILE, PARSED
from kernbench.atomic_write import written_aside
from kernbench.log import stored_sources
from kernbench.mcp_server.answers import WriteAnswer
from kernbench.task import snapshot
from kernbench.task.lookup import make_state
from kernbench.task.source_files import is_skipped, is_source

LONGEST_PATH = 200


class NotWritten(UserError):
    """Why a file was not written; one sentence."""


def write(task: Task, state: Path, path: str, text: str) -> WriteAnswer:
    """Makes `path`, relative to the task's folder, this text. The files as they were are kept as a snapshot."""
    folder, data = Path(task.folder), _encoded(path, text)
    name = may_write(task, path, data)
    target = folder / name
    if _is_same(target, data):
        return WriteAnswer(folder.name, name.as_posix(), False, "")
    make_state(state)
    before = snapshot.take(folder, state, task)
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(target, data) as move:
        _no_links(folder, name)
        move()
    return WriteAnswer(folder.name, name.as_posix(), True, before.sha[:8])


def may_write(task: Task, path: str, data: bytes) -> PurePosixPath:
    """The path, if a client may make this file these bytes; else NotWritten says why not."""
    folder, name = Path(task.folder), _checked(task, path)
    _no_links(folder, name)
    if not _is_same(folder / name, data):
        _same_task(task, name, data)
    return name


def _encoded(path: str, text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise NotWritten(f"{path} was not written: its text is not valid Unicode") from None
    if len(data) > LARGEST_FILE:
        raise NotWritten(f"{path} was not written: it is over 1 MB, and such a file is not part of a source")
    return data


def _checked(task: Task, path: str) -> PurePosixPath:
    """The path, if a file of a solution may have it."""
    name = PurePosixPath(path)
    parts = path.split("/")
    if name.is_absolute() or not path or any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise NotWritten(f"{path!r} was not written: give a path inside the task's folder, such as solution.py")
    if len(path.encode(errors="replace")) > LONGEST_PATH:
        raise NotWritten(f"{path[:40]}... was not written: its path is longer than {LONGEST_PATH} bytes")
    if path in stored_sources.frozen(task):
        raise NotWritten(f"{path} was not written: it belongs to the task; only the solution's files can be written")
    is_ignored = any(
        fnmatchcase(text, pattern)
        for pattern in task.ignore
        for place in (name, *name.parents)
        for text in (place.name, place.as_posix())
    )
    if any(map(is_skipped, parts)) or not is_source(name.name) or is_ignored:
        raise NotWritten(f"{path} was not written: a file of this name is not part of a source; write code instead")
    return name


def _no_links(folder: Path, name: PurePosixPath) -> None:
    """Nothing on the way is a link, which could lead anywhere, and the file itself is a plain one or missing."""
    for place in (*reversed(name.parents[:-1]), name):
        here = folder / place
        if here.is_symlink():
            raise NotWritten(f"{name} was not written: {place} is a link; replace it with a copy first")
        is_last = place == name
        if here.exists() and not (here.is_file() if is_last else here.is_dir()):
            what = "a plain file" if is_last else "a folder"
            raise NotWritten(f"{name} was not written: {place} is not {what}")


def _is_same(target: Path, data: bytes) -> bool:
    try:
        return read_bytes(target, LARGEST_FILE + 1) == data
    except (OSError, NotRegular):
        return False


def _same_task(task: Task, name: PurePosixPath, data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="kernbench-") as place:
        _linked(Path(task.folder), Path(place), name)
        (Path(place) / name).write_bytes(data)
        try:
            after = taskfile.load(Path(place), solution=False)
        except TaskError as problem:
            raise NotWritten(f"{name} was not written: with it, the task cannot be read ({problem.problem})") from None
    if after.hash != task.hash or name.as_posix() in after.own_files:
        used = fmt.joined([file for file in (*PARSED, "reference.py") if (Path(task.folder) / file).exists()])
        raise NotWritten(f"{name} was not written: {used} would use it, and that would change the task; rename it")


def _linked(folder: Path, copy: Path, name: PurePosixPath) -> None:
    """Fills `copy` with links to what the folder has, except `name`, whose folders are made anew."""
    for entry in os.scandir(folder) if folder.is_dir() else ():
        if not is_skipped(entry.name) and entry.name != name.parts[0]:
            (copy / entry.name).symlink_to(entry.path)
    if len(name.parts) > 1:
        (copy / name.parts[0]).mkdir()
        _linked(folder / name.parts[0], copy / name.parts[0], PurePosixPath(*name.parts[1:]))
