"""What ran is what is kept: the task's sources, copied into a folder named by their hash.

`take` returns the Source of the folder as it is now. Two hashes: `sha` over the bytes names the snapshot; `meaning` is
the same for sources that differ only in comments and layout, which are not worth timing again. Notes, exports,
objects, editors' copies and the like lie beside the source and are no part of it, unless a source file names them: a
save of one is no iteration.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernbench.meaning import of as meaning_of

LARGEST_FILE = 1024 * 1024
LEFT_OUT = frozenset({"ITERATIONS.md", "__pycache__", "exports"})
DATA = frozenset(".txt .csv .json .jsonl".split())
"""Read by a program as often as written by a person: they count where a source file speaks of such files at all."""
BESIDE = DATA | frozenset(
    ".md .rst .html .pdf .png .svg .log .patch .diff .orig .rej .bak .swp .swo .tmp "
    ".o .a .d .out .data .ncu-rep .nsys-rep .sqlite".split()
)
ALWAYS = frozenset({"cases.json"})


Stamps = dict[str, tuple[int, int, int]]
"""Time, size and number of every file of a source."""


@dataclass(frozen=True)
class Source:
    sha: str
    meaning: str
    folder: Path


def source_files(folder: Path, state: Path | None = None) -> list[Path]:
    """Every file that belongs to the source, as paths relative to the folder."""
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if not is_left_out(name) and here / name != state)
        for name in sorted(files):
            path = here / name
            if not is_left_out(name) and _is_bearable(path):
                found.append(path.relative_to(folder))
    return _without_what_lies_beside(folder, found)


def _without_what_lies_beside(folder: Path, found: list[Path]) -> list[Path]:
    doubtful = {path for path in found if _lies_beside(path)}
    if not doubtful:
        return found
    text = "\n".join(_text(folder / path) for path in found if path not in doubtful)
    return [path for path in found if path not in doubtful or _is_named(path, text)]


def _lies_beside(path: Path) -> bool:
    """By its name; one without a suffix is a tool's (Makefile, tags, vim's 4913) or an editor's copy."""
    if path.name in ALWAYS:
        return False
    return path.suffix in BESIDE or not path.suffix or path.name.startswith("#")


def _is_named(path: Path, text: str) -> bool:
    if path.suffix in DATA and path.suffix in text:
        return True
    return re.search(rf"""["'/<]{re.escape(path.name)}["'>]""", text) is not None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # an editor replaced it just now
        return ""


def stamps(folder: Path, state: Path | None) -> Stamps:
    """Changed by every save, also of the same text."""
    found: Stamps = {}
    for path in source_files(folder, state):
        with contextlib.suppress(OSError):  # gone since
            about = (folder / path).stat()
            found[str(path)] = about.st_mtime_ns, about.st_size, about.st_ino
    return found


def sha_of(folder: Path, state: Path) -> str:
    """Hash of the present sources, without keeping them."""
    return _digest(_read(folder, state))


def take(folder: Path, state: Path) -> Source:
    """Copies the present sources to state/sources/<sha>/ unless that very source is there already."""
    if not folder.is_dir():  # moved away: it is not to be made again, empty, by a state folder inside it
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))
    contents = _read(folder, state)
    sha, meaning = _digest(contents), _digest({name: meaning_of(name, data) for name, data in contents.items()})
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
    return Source(sha, meaning, target)


def _write(contents: dict[str, bytes], folder: Path) -> None:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _is_bearable(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= LARGEST_FILE
    except FileNotFoundError:  # an editor's, which lives for a moment
        return False


def is_left_out(name: str) -> bool:
    return name.startswith(".") or name in LEFT_OUT or name.endswith("~")


def _read(folder: Path, state: Path) -> dict[str, bytes]:
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
