"""Code of ours in programs that know nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernbench.programs import injected


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = injected.variables(folder, {**os.environ, **environment})
    return subprocess.run([sys.executable, *words], env=variables, capture_output=True, text=True, check=True)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    harness = tmp_path / "harness"
    (harness / "room").mkdir(parents=True)
    (harness / "__init__.py").touch()
    (harness / "room" / "__init__.py").touch()
    (harness / "room" / "part.py").write_text("WORD = 'hello'\n")
    (harness / "room" / "told.py").write_text("from .part import WORD\ndef start(given): print(WORD, given['who'])\n")
    real = Path(injected.__file__).parents[3] / "harness"
    (harness / "injection").symlink_to(real / "injection")
    monkeypatch.setattr(injected, "harness_folder", lambda: harness)
    folder = tmp_path / "inside"
    folder.mkdir()
    injected.write(folder, "room.told", {"who": "world"})
    return folder


def test_it_runs_first_and_the_program_finds_everything_as_it_was(inside: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('the own one')\n")
    code = "import sys, sitecustomize as s; print(s.__file__, [p for p in sys.path if 'inside' in p])"
    done = run(inside, "-c", f"print('harness' in __import__('sys').modules)\n{code}", PYTHONPATH=str(own))
    assert done.stdout.splitlines() == ["hello world", "the own one", "False", f"{own / 'sitecustomize.py'} []"]


def test_spawned_processes_have_it_too(inside: Path) -> None:
    spawn = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])"
    assert run(inside, "-c", spawn).stdout == "hello world\n" * 2


def test_a_program_runs_although_ours_cannot(inside: Path) -> None:
    (inside / "inside.json").write_text("{}")
    done = run(inside, "-c", "print('ran')")
    assert done.stdout == "ran\n"
    assert done.stderr.startswith("kernbench: cannot get into ")
