"""Checks the repository that a kernel comes from or goes to: default branch, clean, up to date with upstream.

Changes nothing, not even git's index. It does not fetch either, so "up to date" is as of the last fetch, whose age is
shown.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from kernbench import render
from kernbench.doctor.installation import Check
from kernbench.machine.git import Git
from kernbench.task.lookup import repository_root


def checks(path: Path) -> list[Check]:
    """Checks of the repository that contains `path`; every check is ok or names its fix."""
    if not path.exists():
        return [Check("repository", False, f"{path} does not exist", "Check the path.")]
    root = repository_root(path.resolve())
    if root is None:
        fix = "Give a folder inside a git repository."
        return [Check("repository", False, f"{path} is not in a git repository", fix)]
    git = Git(root)
    if git.ask("rev-parse", "--git-dir") is None:
        fix = f"Install git, or let it trust the folder: `git config --global --add safe.directory {root}`."
        return [Check("repository", False, f"{root}, but git does not work there", fix)]
    return [Check("repository", True, str(root)), _branch(git), cleanliness(git), _upstream(git)]


def cleanliness(git: Git) -> Check:
    status = git.status()
    if status is None:
        return Check("clean", False, "git status fails", f"Run `git -C {git.root} status` and fix what it reports.")
    if not status:
        return Check("clean", True, "nothing to commit")
    names = [line[3:] for line in status.splitlines()]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Check("clean", False, f"{len(names)} not committed: {shown}", "Commit or stash them.")


def _branch(git: Git) -> Check:
    branch = git.ask("symbolic-ref", "--short", "HEAD")
    default = _default_branch(git)
    if branch is None:
        return Check("branch", False, "no branch is checked out (detached HEAD)", f"`git switch {default or 'main'}`.")
    if default is None:
        fix = "`git remote set-head origin --auto` looks it up."
        return Check("branch", False, f"{branch}; the default branch is unknown", fix)
    if branch != default:
        return Check("branch", False, f"{branch}, not the default branch {default}", f"`git switch {default}`.")
    return Check("branch", True, f"{branch}, the default branch")


def _default_branch(git: Git) -> str | None:
    """The remote's default branch; without a remote, main or master, if only one exists."""
    if remote := git.ask("symbolic-ref", "--short", "refs/remotes/origin/HEAD"):
        return remote.removeprefix("origin/")
    for names in (("main", "master"), ("origin/main", "origin/master")):
        there = [name for name in names if git.ask("rev-parse", "--verify", "--quiet", name) is not None]
        if len(there) == 1:
            return there[0].removeprefix("origin/")
    return None


def _upstream(git: Git) -> Check:
    name = git.ask("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    if name is None:
        fix = "`git branch --set-upstream-to=origin/BRANCH` sets it."
        return Check("upstream", False, "the branch has no upstream", fix)
    counted = (git.ask("rev-list", "--left-right", "--count", "HEAD...@{upstream}") or "").split()
    if len(counted) != 2:
        return Check("upstream", False, f"cannot compare with {name}", "Run `git fetch` and try again.")
    ahead, behind = map(int, counted)
    as_of = f" ({_last_fetch(git)})"
    if ahead == behind == 0:
        return Check("upstream", True, f"up to date with {name}{as_of}")
    parts = [f"{ahead} ahead of" if ahead else "", f"{behind} behind" if behind else ""]
    fix = "`git pull --ff-only`." if not ahead else "`git push`." if not behind else "`git pull --rebase`, then push."
    return Check("upstream", False, f"{' and '.join(part for part in parts if part)} {name}{as_of}", fix)


def _last_fetch(git: Git) -> str:
    folder = Path(git.ask("rev-parse", "--absolute-git-dir") or git.root / ".git")
    try:
        at = datetime.fromtimestamp((folder / "FETCH_HEAD").stat().st_mtime, timezone.utc)
    except OSError:
        return "not fetched since it was cloned"
    return f"as of the last fetch, {render.age(at.isoformat())} ago"
