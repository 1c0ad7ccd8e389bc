"""A folder at a revision: every byte as git has it, and nothing that the repository names is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernbench.machine import git_folder
from kernbench.machine.git_folder import NotThere, Revision, RevisionError
from tests.repositories import commit, git


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A folder of a repository, with one commit."""
    folder = tmp_path / "repository" / "kernels" / "toy"
    folder.mkdir(parents=True)
    (folder / "solution.py").write_bytes(b"x = 1\r\ny = '\xff'\n")
    git(tmp_path / "repository", "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def files(folder: Path, revision: str = "HEAD") -> dict[str, bytes]:
    return dict(git_folder.read(folder, Revision.of(revision, folder)).files)


def again(folder: Path) -> None:
    git(folder, "add", "-A", ":/")
    git(folder, "commit", "-q", "-m", "again")


def test_bytes_are_those_of_the_revision(task: Path) -> None:
    (task / "solution.py").write_text("changed\n")
    assert files(task) == {"solution.py": b"x = 1\r\ny = '\xff'\n"}
    assert (task / "solution.py").read_text() == "changed\n"


def test_only_sources_are_read(task: Path) -> None:
    (task / "lib").mkdir()
    (task / "lib" / "part.h").write_text("// part\n")
    (task / "README.md").write_text("words\n")
    (task / "ITERATIONS.md").write_text("log\n")
    (task / ".hidden.py").write_text("\n")
    (task / "weights.bin").write_bytes(b"0" * ((1 << 20) + 1))
    again(task)
    assert set(files(task)) == {"solution.py", "lib/part.h"}


def test_no_filter_and_no_hook_runs(task: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (task / ".gitattributes").write_text("*.py filter=evil export-subst ident\n")
    again(task)
    for name in ("smudge", "clean"):
        git(task, "config", f"filter.evil.{name}", f"touch {ran}; cat")
    hook = task.parents[1] / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    assert files(task)["solution.py"].startswith(b"x = 1\r\n")
    assert not ran.exists()


def test_links_are_followed_in_the_revision(task: Path, tmp_path: Path) -> None:
    common = task.parent / "common"
    common.mkdir()
    (common / "part.py").write_text("old = 1\n")
    (tmp_path / "outside.py").write_text("outside = 1\n")
    (task / "part.py").symlink_to("../common/part.py")
    (task / "all").symlink_to("../common")
    (task / "outside.py").symlink_to(tmp_path / "outside.py")
    (task / "broken.py").symlink_to("../common/gone.py")
    again(task)
    before = git_folder.read(task, Revision.of("HEAD", task))
    assert before.files["part.py"] == before.files["all/part.py"] == b"old = 1\n"
    assert before.files["outside.py"] == b"outside = 1\n"
    assert "broken.py" not in before.files
    (common / "part.py").write_text("new = 1\n")
    again(task)
    assert files(task, "HEAD~1")["part.py"] == b"old = 1\n"
    after = git_folder.read(task, Revision.of("HEAD", task))
    assert after.files["part.py"] == b"new = 1\n"
    assert (after.tree == before.tree, after.key == before.key) == (True, False)


def test_a_folder_that_was_not_there(task: Path) -> None:
    (task.parent / "new").mkdir()
    with pytest.raises(NotThere, match="new was not part of HEAD"):
        files(task.parent / "new")


def test_a_revision_that_git_does_not_have(task: Path) -> None:
    for name in ("nope", "--all", "HEAD~7", ""):
        with pytest.raises(RevisionError, match="git has no revision"):
            Revision.of(name, task)


def test_a_shallow_clone_says_that_it_is_one(task: Path, tmp_path: Path) -> None:
    again_at = task / "solution.py"
    again_at.write_text("x = 2\n")
    again(task)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{task.parents[1]}", str(clone))
    with pytest.raises(RevisionError, match=r"HEAD~1 is not in this clone, which is shallow; fetch .*--unshallow"):
        Revision.of("HEAD~1", clone / "kernels" / "toy")
    assert files(clone / "kernels" / "toy")["solution.py"] == b"x = 2\n"


def test_outside_of_a_repository(tmp_path: Path) -> None:
    with pytest.raises(RevisionError, match="git:main needs a git repository around"):
        Revision.of("main", tmp_path)


def test_a_hook_s_settings_do_not_mislead(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git sets them for a hook in a linked work tree."""
    commit(tmp_path / "repository")
    git(task, "worktree", "add", "-q", str(tmp_path / "second"))
    monkeypatch.setenv("GIT_DIR", str(task.parents[1] / ".git" / "worktrees" / "second"))
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    assert set(files(tmp_path / "second" / "kernels" / "toy")) == {"solution.py"}
