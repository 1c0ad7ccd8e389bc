"""Scratch git repositories, for tests that compare with a revision."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
WHO = ("-c", "user.name=someone", "-c", "user.email=someone@localhost", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *WHO, *words]
    return subprocess.run(command, env={**os.environ, **SETTINGS}, capture_output=True, text=True, check=True).stdout


def commit(folder: Path, message: str = "as it is") -> str:
    """Commits everything in the repository around the folder, which is made if there is none; its hash."""
    if not any((place / ".git").exists() for place in (folder, folder.parent)):
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A", ":/")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD").strip()
