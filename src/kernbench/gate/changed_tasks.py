"""Which tasks of a repository a gate runs: those whose source or task files are not what they were at a revision.

A task counts as changed if it differs from that revision and from the commit at which HEAD left its history: what
changed only there, after this branch began, is not this branch's to answer for.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.shared import taskfile
from harness.shared.taskfile.values import TaskError
from kernbench.machine import git_folder
from kernbench.machine.git import Git
from kernbench.machine.git_folder import NotThere, Revision, RevisionError
from kernbench.machine.tool import ToolError
from kernbench.task import lookup, snapshot


def changed(place: Path, revision: Revision) -> list[Path]:
    """The folders of all changed tasks in the repository around `place`."""
    base = revision.shared_with_head(place)
    since = [revision] if base is None or base.commit == revision.commit else [revision, base]
    return [folder for folder in in_repository(place) if all(differs(folder, item) for item in since)]


def in_repository(place: Path) -> list[Path]:
    """Every task that git has or would add, except those inside an installed kernbench."""
    git = Git(place)
    words = ("ls-files", "-z", "--full-name", "--cached", "--others", "--exclude-standard", "--")
    try:
        top = Path(os.fsdecode(git.read("rev-parse", "--show-toplevel").rstrip(b"\n")))
        listed = git.read(*words, f":(top,glob)**/{lookup.TASK_FILE}")
    except ToolError as problem:
        raise RevisionError(f"cannot list the tasks of the repository: {problem}") from None
    folders = {(top / os.fsdecode(name)).parent for name in listed.split(b"\0") if name}
    return sorted(path for path in folders if (path / lookup.TASK_FILE).is_file() and not lookup.read_only(path))


def differs(folder: Path, revision: Revision) -> bool:
    try:
        then = git_folder.read(folder, revision).files
        now = snapshot.read(folder, None, taskfile.load(folder).ignore)
    except (NotThere, TaskError):  # new, or broken, which its run reports
        return True
    if any(then.get(name) != content for name, content in now.items()):
        return True
    return any(name not in now and not (folder / name).exists() for name in then)
