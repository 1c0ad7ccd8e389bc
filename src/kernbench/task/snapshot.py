"""Copies a task's sources into a folder named by their hash, so that the kept source is exactly what ran.

`take` returns the Source of the folder as it is now, with two hashes: `sha` over the bytes names the snapshot; `code`
covers the solution alone, without comments and formatting, and is equal for equal code. source_files.py decides which
files are the source.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.task import Task
from harness.shared.used_files import LARGEST_FILE, PARSED
from harness.shared.used_files import code_of as code_of_file
from kernbench.task.source_files import Stamps, source_files, stamps

WORDS = re.compile(rb"\w+")
LOOKS_AROUND = re.compile(
    rb"\b(?:i?glob|rglob|listdir|scandir|iterdir|walk|import_module|__import__|spec_from_file_location|runpy|exec)\b"
)
"""Ways to load a file without naming it."""
_checked: dict[Path, tuple[Stamps, Sequence[str]]] = {}
"""What `kept_files` found, which holds until a file's stamp changes."""


@dataclass(frozen=True)
class Source:
    sha: str
    code: str
    folder: Path


def sha_of(folder: Path, state: Path, ignore: Sequence[str] = ()) -> str:
    """Hash of the current sources, without keeping them."""
    return _digest(read(folder, state, ignore))


def code_of(folder: Path, task: Task) -> str:
    """Hash of a snapshot's code: its files without the task's own and without unused Python files."""
    return _code(read(folder, None, task.ignore), task.files)


def _code(contents: Mapping[str, bytes], task_files: Collection[str]) -> str:
    counted = code_files(contents, task_files)
    return _digest({name: code_of_file(name, data) for name, data in contents.items() if name in counted})


def code_files(contents: Mapping[str, bytes], task_files: Collection[str]) -> set[str]:
    """The files that count in `code`."""
    return set(contents) - {*PARSED, *task_files} - _unmentioned(contents)


def _unmentioned(contents: Mapping[str, bytes]) -> set[str]:
    """Python files that neither the solution nor any file it uses mentions: they change nothing. Every other file
    counts, and all of them if the code searches for files."""
    modules = {name for name in contents if name.endswith(".py")}
    used = ["solution.py"]
    for current in used:
        text = contents.get(current, b"")
        if LOOKS_AROUND.search(text):
            return set()
        words = set(WORDS.findall(text))
        used += [name for name in modules if name not in used and _stems(name) & words]
    return modules - set(used)


def _stems(name: str) -> set[bytes]:
    """Names by which code refers to a module: the file's and its folders'."""
    return {os.fsencode(part) for part in name.removesuffix(".py").split("/")} - {b"__init__"}


def take(folder: Path, state: Path, task: Task | None = None) -> Source:
    """Copies the current sources to state/sources/<sha>/ unless that snapshot exists already."""
    if not folder.is_dir():  # moved away: creating the state folder must not recreate it, empty
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    return keep(read(folder, state, task.ignore if task is not None else ()), state, task)


def keep(contents: Mapping[str, bytes], state: Path, task: Task | None = None) -> Source:
    """The same for files that are in no folder yet; by name, in the order of `read`."""
    sha = _digest(contents)
    target = state / "sources" / sha
    if not is_whole(target):  # with all of its files it may have others too
        _set_aside(target)
    store(contents, target)
    return Source(sha, _code(contents, task.files if task is not None else ()), target)


def store(contents: Mapping[str, bytes], target: Path) -> None:
    """Writes the files into a new folder, whole or not at all, unless one has them already; a damaged one makes way."""
    with contextlib.suppress(OSError):
        os.utime(target)  # in use again: pruning leaves it alone
    if not _holds(target, contents):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        try:
            _write(contents, scratch)
            _set_aside(target)
            scratch.rename(target)  # whole or not at all
            threading.Thread(target=_sync, args=(target,)).start()
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)  # on a full disk the partial copy takes up space
            if not _holds(target, contents):  # else another workbench was faster
                raise


def _set_aside(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        folder.rename(folder.with_name(f".gone-{secrets.token_hex(4)}"))  # pruning removes it


def _holds(folder: Path, contents: Mapping[str, bytes]) -> bool:
    try:
        same = (read_bytes(folder / name, len(data)) == data for name, data in contents.items())
        return not folder.is_symlink() and all(same)
    except (OSError, NotRegular):
        return False


def _write(contents: Mapping[str, bytes], folder: Path) -> None:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _sync(folder: Path) -> None:
    """Makes a power cut leave no empty files. A run need not wait for this: `kept_files` finds them."""
    with contextlib.suppress(OSError):
        for path in [*folder.rglob("*"), folder, folder.parent]:
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)


def is_whole(folder: Path) -> bool:
    return bool(kept_files(folder))


def kept_files(folder: Path) -> Sequence[str]:
    """The files whose hash is the snapshot's name; none if it is damaged, missing, or a link, which kernbench does not
    make. A run may have added files, such as tuned constants: those are the newest and do not count."""
    if folder.is_symlink() or not folder.is_dir():
        return ()
    now = stamps(folder, None)
    if folder not in _checked or _checked[folder][0] != now:
        contents = {name: data for name, data in read(folder).items() if name in now}
        ages = sorted({written for written, _size, _inode in now.values()}, reverse=True)
        older = ({name: data for name, data in contents.items() if now[name][0] <= age} for age in ages)
        _checked[folder] = now, next((tuple(files) for files in older if _digest(files) == folder.name), ())
    return _checked[folder][1]


def read(folder: Path, state: Path | None = None, ignore: Sequence[str] = ()) -> dict[str, bytes]:
    """The source files of a folder, or of a snapshot, by name."""
    contents: dict[str, bytes] = {}
    for name in source_files(folder, state, ignore):
        try:
            contents[name.as_posix()] = read_bytes(folder / name, LARGEST_FILE)
        except (FileNotFoundError, NotRegular):  # it is just being replaced; the next event brings it back
            continue
    return contents


def _digest(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in contents.items():
        digest.update(os.fsencode(f"{name}\0{len(data)}\0") + data)
    return digest.hexdigest()
