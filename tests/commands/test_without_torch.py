"""An install with --no-deps into a Python without torch: what needs no worker works, `--python` does the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import FAKE, ROOT
from tests.sessions import write

BLOCKED = ("torch", "triton", "textual", "rich", "watchfiles", "pandas", "pynvml", "yaml", "jinja2")
BLOCKER = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""
LOG = "# Iterations of toy\n\n## 1 · first try · 2.00x · first\n- when 2026-11-15 04:40 UTC · source 5e000584 · Fake\n"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH that takes the packages away."""
    place = tmp_path / "bare"
    place.mkdir()
    (place / "sitecustomize.py").write_text(BLOCKER.format(blocked=BLOCKED))
    return place


def kernbench(bare: Path, folder: Path, *words: str, **given: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(bare), str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "KERNBENCH_HARNESS": str(FAKE), **given}
    command = [sys.executable, "-m", "kernbench", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "line",
    [
        "--version",
        "--help",
        "status",
        "log toy",
        "log toy --json",
        "show toy 1",
        "show toy now --source",
        "diff toy now now",
        "export toy --format md -o -",
        "export toy --format json -o -",
        "guide",
        "guide tasks",
        "completion zsh",
        "new other",
        "new another --from softmax_host",
        "drop toy 1 --yes",
        "restore toy now",
    ],
)
def test_a_command_that_needs_no_worker_works(bare: Path, folder: Path, line: str) -> None:
    (folder / "ITERATIONS.md").write_text(LOG)
    done = kernbench(bare, folder.parent, *line.split())
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_another_python_runs_the_worker(bare: Path, folder: Path) -> None:
    write(folder, "TIME_US = 50.0")
    done = kernbench(bare, folder, "run", "-m", "first", "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    assert "geomean 2.00x" in done.stdout


def test_what_is_missing_is_named_with_the_command_that_brings_it(bare: Path, folder: Path) -> None:
    (folder / "ITERATIONS.md").write_text(LOG)
    done = kernbench(bare, folder, "export", "--format", "csv", "-o", "-")
    assert done.returncode == 2
    command = f"{sys.executable} -m pip install pandas"
    assert done.stderr == f"kernbench: this needs pandas, which is not installed; `{command}` installs it\n"


def test_doctor_names_torch_and_textual(bare: Path, folder: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"  # the probe's Python gets no PYTHONPATH that would take torch away
    python.write_text('#!/bin/sh\necho \'{"python": "3.11", "torch_problem": "none", "triton_problem": "none"}\'\n')
    python.chmod(0o755)
    said = kernbench(bare, folder, "doctor", "--python", str(python)).stdout
    assert "MISSING torch" in " ".join(said.split())
    assert "MISSING Textual not installed" in " ".join(said.split())


def test_the_version_names_the_state_of_a_checkout(tmp_path: Path) -> None:
    from kernbench.version import __version__, described

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", *who, "-C", str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert described(tmp_path).startswith(__version__)
    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    commit = git("rev-parse", "--short=9", "HEAD")
    (tmp_path / "notes").write_text("untracked")
    assert described(tmp_path) == f"{__version__} ({commit})"
    (tmp_path / "file").write_text("2")
    assert described(tmp_path) == f"{__version__} ({commit}, dirty)"
