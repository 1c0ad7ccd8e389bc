"""A task's worktree: a branch from the commit that is checked out, with a copy of the task's log.

A campaign starts from what is committed: a task whose files differ from that is not touched, and a result is promoted
only while the user's files are still those that it started from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench.machine import tool
from kernbench.machine.git import Git
from kernbench.task import lookup, snapshot

SECONDS = 600.0
"""For git to check out a large repository."""
LOG, RUNS = "ITERATIONS.md", "runs.jsonl"
AUTHOR = ("-c", "user.name=kernbench", "-c", "user.email=kernbench@localhost", "-c", "commit.gpgsign=false")


class NotStarted(UserError):
    """Why a task is skipped; one sentence."""


@dataclass(frozen=True)
class Start:
    """What a task's work starts from."""

    commit: str
    branch: str
    source: str
    """Hash of the source as it is."""
    task_hash: str
    log: str
    """Digest of ITERATIONS.md, empty without one."""
    runs: int
    """Bytes of runs.jsonl."""

    @classmethod
    def of(cls, folder: Path, branch: str) -> Start:
        task, state = taskfile.load(folder), folder / lookup.STATE_FOLDER
        commit = Git(folder).ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if not commit:
            raise NotStarted("it is not in a git repository with a commit; `git init`, add and commit it first")
        runs = state / RUNS
        return cls(
            commit=commit,
            branch=branch,
            source=snapshot.sha_of(folder, state, task.ignore),
            task_hash=task.hash,
            log=digest(folder / LOG),
            runs=runs.stat().st_size if runs.is_file() else 0,
        )

    @classmethod
    def read(cls, event: dict[str, Any]) -> Start:
        return cls(**{name: event[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class TaskTree:
    user: Path
    """The task's folder in the user's checkout."""
    place: Path
    """The campaign's folder for the task."""
    start: Start

    @property
    def root(self) -> Path:
        return self.place / "tree"

    @property
    def folder(self) -> Path:
        """The task's folder in the worktree."""
        return self.root / self.user.relative_to(_repository(self.user))

    @property
    def git_file(self) -> Path:
        """Says where the repository is; in a sandbox it cannot be changed, because git is run here later."""
        return self.root / ".git"

    @property
    def is_moved(self) -> bool:
        """Whether a link has taken the place of the task's folder or of its log: nothing may be written there."""
        return self.folder.resolve() != self.folder or self.state.is_symlink()

    @property
    def state(self) -> Path:
        return self.folder / lookup.STATE_FOLDER

    @property
    def user_state(self) -> Path:
        return self.user / lookup.STATE_FOLDER

    def make(self) -> None:
        """Begins anew if an earlier attempt was interrupted. Raises NotStarted if the files differ from the commit."""
        git = Git(self.user)
        if self.root.exists():
            shutil.rmtree(self.root)
        _git(git, "worktree", "prune")
        self.place.mkdir(parents=True, exist_ok=True)
        _git(git, "worktree", "add", "--quiet", "-B", self.start.branch, str(self.root), self.start.commit)
        try:
            self._same_as_committed()
        except NotStarted:
            _git(git, "worktree", "remove", "--force", str(self.root))
            _git(git, "branch", "-D", self.start.branch)
            raise
        self._copy_log()

    def task(self) -> Task:
        """As it is in the worktree now."""
        return taskfile.load(self.folder)

    def commit(self, message: str) -> None:
        """All that changed; nothing if nothing did. Refuses a repository in the worktree: git would run its filters."""
        for folder, folders, files in os.walk(self.root):
            if ".git" in (*folders, *files) and Path(folder) != self.root:
                raise UserError(f"the agent made a git repository in its worktree ({folder}), so nothing was committed")
        git = Git(self.root)
        _git(git, "add", "-A")
        if git.ask("diff", "--cached", "--quiet") is None:
            _git(git, *AUTHOR, "commit", "--quiet", "--no-verify", "-m", message)

    def _same_as_committed(self) -> None:
        if not (self.folder / lookup.TASK_FILE).is_file():
            raise NotStarted("it is not committed; a campaign starts from what is")
        task = self.task()
        source = snapshot.sha_of(self.folder, self.state, task.ignore)
        if (source, task.hash) != (self.start.source, self.start.task_hash):
            raise NotStarted("its files differ from what is committed; commit or stash the changes")

    def _copy_log(self) -> None:
        lookup.make_state(self.state)
        if (self.user / LOG).is_file():
            shutil.copyfile(self.user / LOG, self.folder / LOG)
        if self.start.runs:
            with open(self.user_state / RUNS, "rb") as runs:
                (self.state / RUNS).write_bytes(runs.read(self.start.runs))
        if (self.user_state / "sources").is_dir():
            shutil.copytree(self.user_state / "sources", self.state / "sources", symlinks=True)
        snapshot.take(self.folder, self.state, self.task())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _repository(folder: Path) -> Path:
    root = lookup.repository_root(folder)
    assert root is not None  # Start.of has asked git
    return root.resolve()


def _git(git: Git, *words: str) -> None:
    try:
        git.read(*words, seconds=SECONDS)
    except tool.ToolError as problem:
        raise UserError(f"{git.root}: {problem}") from None
