"""A folder as it was at a revision, read from git's objects: no filters, no hooks, and the work tree stays as it is.

Only files that count as source are read. A link is followed inside that revision; one that leads out of the repository
is followed to the file as it is now, because git does not have it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.used_files import LARGEST_FILE, MOST_FILES
from kernbench.machine.git import Git
from kernbench.machine.tool import ToolError
from kernbench.task.source_files import is_skipped, is_source

LINK, FILE = "120000", "100"
STRANGE = (b"symlink ", b"dangling ", b"loop ", b"notdir ")
"""How the answer begins for a link that leads to no object; its second word is the length of what follows."""


class RevisionError(UserError):
    """Git has no such revision, or cannot read it; one sentence."""


class NotThere(RevisionError):
    """The revision exists, and the folder was not part of it."""


@dataclass(frozen=True)
class Revision:
    """A commit, by the name that the user gave it."""

    name: str
    commit: str

    @classmethod
    def of(cls, name: str, folder: Path) -> Revision:
        """Raises RevisionError, with what to do about it."""
        git = Git(folder)
        try:
            shallow = git.read("rev-parse", "--is-shallow-repository").strip() == b"true"
        except ToolError as problem:
            raise RevisionError(f"git:{name} needs a git repository around {folder}; {problem}") from None
        found = None if name.startswith("-") else git.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found:
            return cls(name, found)
        if shallow:
            fetch = "`git fetch --unshallow` (in GitHub's checkout action: `fetch-depth: 0`)"
            raise RevisionError(f"{name} is not in this clone, which is shallow; fetch the history with {fetch}")
        raise RevisionError(f"git has no revision {name!r}; `git fetch` may bring it, `git log` shows what there is")

    @property
    def is_bare(self) -> bool:
        """Whether it was given by its hash."""
        return self.commit.startswith(self.name)

    def shared_with_head(self, folder: Path) -> Revision | None:
        """The commit at which HEAD left this revision's history; None if git does not know."""
        found = Git(folder).ask("merge-base", "HEAD", self.commit)
        return Revision(self.name, found) if found else None


@dataclass(frozen=True)
class OldFolder:
    revision: Revision
    tree: str
    """Git's hash of the folder."""
    files: Mapping[str, bytes]
    linked: str = ""
    """Hash of what links brought in, which the tree's does not cover; empty without links."""

    @property
    def key(self) -> str:
        return f"{self.tree}-{self.linked}" if self.linked else self.tree


def read(folder: Path, revision: Revision) -> OldFolder:
    """Raises NotThere or RevisionError."""
    git = Git(folder)
    prefix, top = git.ask("rev-parse", "--show-prefix"), git.ask("rev-parse", "--show-toplevel")
    if prefix is None or not top:
        raise RevisionError(f"git has no work tree around {folder}")
    tree = git.ask("rev-parse", "--verify", "--quiet", f"{revision.commit}:{prefix.rstrip('/')}")
    if not tree:
        raise NotThere(f"{folder.name} was not part of {revision.name}")
    try:
        return _read(git, revision, prefix, Path(top), tree)
    except ToolError as problem:
        raise RevisionError(f"cannot read {folder.name} at {revision.name}: {problem}") from None


def _read(git: Git, revision: Revision, prefix: str, top: Path, tree: str) -> OldFolder:
    listed = list(_listed(git, tree))
    names = [f"{revision.commit}:{prefix}{path}" if mode == LINK else found for mode, found, path in listed]
    files: dict[str, bytes] = {}
    links = hashlib.sha256()
    for (mode, _, path), (kind, content) in zip(listed, _contents(git, names), strict=True):
        if mode != LINK:
            if kind != "blob":
                raise ToolError(f"this clone lacks {path} of that revision; fetch it with `git fetch --refetch`")
            files[path] = content
            continue
        brought = {path: content} if kind == "blob" else {}
        if kind == "symlink":
            brought = _outside(path, top / os.fsdecode(content))
        elif kind == "tree":
            below = [item for item in _listed(git, os.fsdecode(content)) if item[0] != LINK]
            found = _contents(git, [item[1] for item in below])
            brought = {f"{path}/{item[2]}": data for item, (_, data) in zip(below, found, strict=True)}
        for name, data in brought.items():
            links.update(os.fsencode(f"{name}\0{len(data)}\0") + data)
        files |= brought
    has_links = any(mode == LINK for mode, _, _ in listed)
    return OldFolder(revision, tree, files, links.hexdigest()[:8] if has_links else "")


def _outside(path: str, target: Path) -> dict[str, bytes]:
    try:
        return {path: read_bytes(target, LARGEST_FILE)}
    except (OSError, NotRegular):
        return {}


def _listed(git: Git, tree: str) -> Iterator[tuple[str, str, str]]:
    """Mode, object and path of each file and link below a tree that counts as source."""
    found_so_far = 0
    for line in git.read("ls-tree", "-r", "-z", "-l", "--full-tree", tree).split(b"\0"):
        about, _, name = line.partition(b"\t")
        path = os.fsdecode(name)
        if not about or "\n" in path or not _counts(path):
            continue
        mode, _, found, size = about.decode().split()
        if mode == LINK or (mode.startswith(FILE) and int(size) <= LARGEST_FILE):
            found_so_far += 1
            if found_so_far > MOST_FILES + 1:
                return
            yield mode, found, path


def _counts(path: str) -> bool:
    """Also refuses a path out of the folder, which a forged tree may have."""
    parts = path.split("/")
    inside = PurePosixPath(path).parts == tuple(parts) and not path.startswith("/")
    return inside and is_source(parts[-1]) and not any(map(is_skipped, parts))


def _contents(git: Git, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Kind and content of each object; a tree's content is its name. `missing` if the clone does not have it."""
    answer = git.read("cat-file", "--batch", "--follow-symlinks", given=b"".join(os.fsencode(f"{n}\n") for n in names))
    place = 0
    for _ in names:
        end = answer.index(b"\n", place)
        line, place = answer[place:end], end + 1
        if line.endswith((b" missing", b" ambiguous")):
            yield "missing", b""
            continue
        name, kind, size = line.split(b" ") if not line.startswith(STRANGE) else (b"", *line.split(b" "))
        content, place = answer[place : place + int(size)], place + int(size) + 1
        yield kind.decode(), name if kind == b"tree" else content
