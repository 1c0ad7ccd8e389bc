"""What ran is what is kept: the task's sources, copied into a folder named by their hash.

`take` returns the Source of the folder as it is now. Two hashes: `sha` over the bytes names the snapshot; `code` is
that of the solution alone, without comments and layout: two sources with one code are the same. Notes, exports,
objects, editors' copies and the like lie beside the source and are no part of it, unless a source file names them: a
save of one is no iteration.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from harness.shared.code_equality import code_of as code_of_file
from harness.shared.used_files import PARSED

LARGEST_FILE = 1024 * 1024
LEFT_OUT = frozenset({"ITERATIONS.md", "__pycache__", "exports"})
DATA = frozenset(".txt .csv .json .jsonl".split())
"""Read by a program as often as written by a person: they count where a source file speaks of such files at all."""
BESIDE = DATA | frozenset(
    ".md .rst .html .pdf .png .svg .log .patch .diff .orig .rej .bak .swp .swo .tmp "
    ".o .a .d .out .data .ncu-rep .nsys-rep .sqlite".split()
)
ALWAYS = frozenset({"cases.json"})
QUOTED = re.compile(r"""(?<=["'/<])[^"'/<>\n]+(?=["'>])""")
"""A name as a program gives it, or the end of a path."""
WORDS = re.compile(rb"\w+")
LOOKS_AROUND = re.compile(
    rb"\b(?:i?glob|rglob|listdir|scandir|iterdir|walk|import_module|__import__|spec_from_file_location|runpy|exec)\b"
)
"""Ways to load a file without naming it."""
MOST_LINKED = 1000
NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""A link to nothing, or a file of an editor's that lives for a moment."""

Stamp = tuple[int, int, int]
Stamps = dict[str, Stamp]
"""Time, size and number of every file of a source."""
Files = dict[Path, os.stat_result | None]
"""None: what may not be looked at; whoever reads it hears why."""
Identity = tuple[int, int]
"""Device and number: the same however a path is spelled."""
MOST_TEXTS = 2000
_texts: dict[Path, tuple[Stamp | None, str]] = {}


@dataclass(frozen=True)
class Source:
    sha: str
    code: str
    folder: Path


def source_files(folder: Path, state: Path | None = None) -> list[Path]:
    """Every file that belongs to the source, as paths relative to the folder."""
    return list(_source(folder, state))


def _source(folder: Path, state: Path | None) -> Files:
    found: Files = {}
    real = folder.resolve()
    for path in _walk(folder, {identity(place) for place in (state, real, *real.parents) if place is not None}):
        try:
            about = path.stat()
        except OSError as problem:
            if problem.errno not in NOWHERE:
                found[path.relative_to(folder)] = None
        else:
            if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST_FILE:
                found[path.relative_to(folder)] = about
    return _without_what_lies_beside(folder, found)


def _walk(folder: Path, never: set[Identity | None], most: int | None = None) -> Iterator[Path]:
    """What is no folder, of each folder before its subfolders. `never` goes into the state, however it is spelled, nor
    into what lies above: a link may lead back there. A folder of `most` entries is left out; behind a link, where there
    is a `most`, no other link is followed: folders that link to one another would be told in every order."""
    try:
        with os.scandir(folder) as listing:
            listed = list(islice(listing, most))
    except OSError:  # gone, or not ours to read
        return
    if len(listed) == most:
        return
    entries = sorted((entry.name, _is_folder(entry)) for entry in listed if not is_left_out(entry.name))
    yield from (folder / name for name, is_folder in entries if not is_folder)
    for below in (folder / name for name, is_folder in entries if is_folder):
        here = identity(below)
        if here in never:
            continue
        if below.is_symlink():
            yield from _linked(below, never | {here}) if most is None else ()
        else:
            yield from _walk(below, never | {here}, most)


def _linked(folder: Path, never: set[Identity | None]) -> list[Path]:
    """Code that several tasks share lies behind a link; what has more files than that is a store of data."""
    found = list(islice(_walk(folder, never, MOST_LINKED + 1), MOST_LINKED + 1))
    return found if len(found) <= MOST_LINKED else []


def identity(folder: Path) -> Identity | None:
    """None where it cannot be looked at."""
    try:
        about = folder.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to where nobody may look
        return False


def _without_what_lies_beside(folder: Path, found: Files) -> Files:
    doubtful = {path for path in found if _lies_beside(path)}
    if not doubtful:
        return found
    text = "\n".join(_text(folder / path, about) for path, about in found.items() if path not in doubtful)
    suffixes, names = {suffix for suffix in DATA if suffix in text}, set(QUOTED.findall(text))
    is_named = {path for path in doubtful if path.suffix in suffixes or path.name in names}
    return {path: about for path, about in found.items() if path not in doubtful or path in is_named}


def _lies_beside(path: Path) -> bool:
    """By its name; one without a suffix is a tool's (Makefile, tags, vim's 4913) or an editor's copy."""
    if path.name in ALWAYS:
        return False
    return path.suffix in BESIDE or not path.suffix or path.name.startswith("#")


def _text(path: Path, about: os.stat_result | None) -> str:
    """Read once and kept: the folder is looked at all the time, and may lie at the end of a network."""
    stamp = _stamp(about) if about is not None else None
    known = _texts.get(path)
    if stamp is None or known is None or known[0] != stamp:
        try:
            known = stamp, path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # an editor replaced it just now
            return ""
        if len(_texts) >= MOST_TEXTS:  # of snapshots that were looked at once, for the most part
            _texts.clear()
        _texts[path] = known
    return known[1]


def _stamp(about: os.stat_result) -> Stamp:
    return about.st_mtime_ns, about.st_size, about.st_ino


def stamps(folder: Path, state: Path | None) -> Stamps:
    """Changed by every save, also of the same text."""
    return {str(path): _stamp(about) for path, about in _source(folder, state).items() if about is not None}


def sha_of(folder: Path, state: Path) -> str:
    """Hash of the present sources, without keeping them."""
    return _digest(_read(folder, state))


def code_of(folder: Path, task_files: Collection[str], state: Path | None = None) -> str:
    """Hash of the code of a folder's solution: the files that are not the task's own, less unused Python files."""
    return _code(_read(folder, state), task_files)


def _code(contents: dict[str, bytes], task_files: Collection[str]) -> str:
    own = {*PARSED, *task_files}
    idle = _unmentioned(contents)
    return _digest({name: code_of_file(name, data) for name, data in contents.items() if name not in own | idle})


def _unmentioned(contents: dict[str, bytes]) -> set[str]:
    """Python files that nothing the solution uses speaks of: they change nothing. Every other file counts, and all of
    them where files are found by looking around."""
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
    """What a program calls a module: its own name, or a folder's."""
    return {os.fsencode(part) for part in name.removesuffix(".py").split("/")} - {b"__init__"}


def take(folder: Path, state: Path, task_files: Collection[str] = ()) -> Source:
    """Copies the present sources to state/sources/<sha>/ unless that very source is there already."""
    if not folder.is_dir():  # moved away: it is not to be made again, empty, by a state folder inside it
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))
    contents = _read(folder, state)
    sha = _digest(contents)
    target = state / "sources" / sha
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        try:
            _write(contents, scratch)
            scratch.rename(target)  # whole or not at all
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)  # on a full disk what was written is in the way
            if not target.is_dir():  # else another workbench was quicker
                raise
    return Source(sha, _code(contents, task_files), target)


def _write(contents: dict[str, bytes], folder: Path) -> None:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def is_left_out(name: str) -> bool:
    return name.startswith(".") or name in LEFT_OUT or name.endswith("~")


def _read(folder: Path, state: Path | None) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for name in source_files(folder, state):
        try:
            contents[name.as_posix()] = (folder / name).read_bytes()
        except FileNotFoundError:  # an editor replaced it just now; the next event brings it back
            continue
    return contents


def _digest(contents: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in contents.items():
        digest.update(os.fsencode(f"{name}\0{len(data)}\0") + data)
    return digest.hexdigest()
