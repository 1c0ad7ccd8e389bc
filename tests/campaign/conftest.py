"""A repository with tasks, and the campaign in it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import FAKE
from tests.campaign import scripted_agent
from tests.repositories import SETTINGS, commit, git

AGENT = shlex.join([sys.executable, scripted_agent.__file__])


class Project:
    def __init__(self, folder: Path, names: str) -> None:
        self.root = folder.parent / "project"
        for name in names.split():
            shutil.copytree(folder, self.root / "kernels" / name)
        self.root.mkdir(exist_ok=True)
        git(self.root, "init", "-q", "-b", "main")
        commit(self.root)

    def campaign(self, script: dict[str, list[str]], *words: str, **more: str) -> tuple[int, list[dict[str, Any]], str]:
        """Its exit code, its new events and what it said."""
        command = [sys.executable, "-m", "kernbench", "campaign", "kernels", "--agent", AGENT, "--json", *words]
        command += [] if "--budget" in words else ["--budget", "9/5"]
        given = {**os.environ, **SETTINGS, "KERNBENCH_HARNESS": str(FAKE), "SCRIPT": json.dumps(script), **more}
        shell = f"export CAMPAIGN_PID=$$; exec {shlex.join(command)}"
        done = subprocess.run(
            ["sh", "-c", shell], cwd=self.root, env=given, capture_output=True, text=True, timeout=580, check=False
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def source(self, name: str) -> str:
        return (self.root / "kernels" / name / "solution.py").read_text()

    def campaign_folder(self) -> Path:
        (path,) = (self.root / "kernels" / ".kernbench" / "campaign").glob("*/")
        return path

    def table(self) -> str:
        return (self.campaign_folder() / "campaign.md").read_text()


@pytest.fixture
def project(folder: Path) -> Callable[[str], Project]:
    return lambda names: Project(folder, names)
