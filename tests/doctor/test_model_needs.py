"""`doctor --model`: every need of a model is a line, and what is missing has a fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import cli
from kernbench.doctor import model_needs
from kernbench.doctor.installation import Check
from kernbench.machine import telemetry
from kernbench.machine.telemetry import GpuProcess, GpuSample, HostSample, Sample
from tests import repositories
from tests.transfer import toy

HOST = HostSample(2, memory_used=4 * 10**9, memory_total=16 * 10**9)
NEEDS = 'needs = ["lib"]\nwants = ["KB_TOKEN"]\n'
TORCH = {"version": "2.11.0", "file": "/x/site-packages/torch/__init__.py"}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose site is in a package, on a machine without a GPU."""
    folder = toy.write(tmp_path, NEEDS + toy.MODEL.replace("layers:scaled", "lib.layers:scaled"))
    monkeypatch.chdir(tmp_path)
    machine(monkeypatch, Sample(HOST, why="none found"))
    monkeypatch.delenv("KB_TOKEN", raising=False)
    return folder


def machine(monkeypatch: pytest.MonkeyPatch, sample: Sample) -> None:
    monkeypatch.setattr(telemetry.MachineReader, "read", lambda self: sample)


def checks(model: Path, **packages: dict[str, str]) -> dict[str, Check]:
    """With a Python that has these packages."""
    python = model.parent / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'torch': TORCH, **packages})}'\n")
    python.chmod(0o755)
    found = model_needs.checks("toy", str(python))
    assert all(check.fix for check in found if not check.ok)
    return {check.name: check for check in found}


def test_what_is_missing_is_named_with_its_fix(model: Path) -> None:
    found = checks(model)
    assert (found["torch"].ok, found["torch"].says) == (True, "2.11.0 in /x/site-packages/torch")
    assert (found["lib"].ok, found["KB_TOKEN"].ok) == (False, False)
    assert "-m pip install 'lib'" in found["lib"].fix
    assert found["KB_TOKEN"].fix == "`export KB_TOKEN=...` sets it."
    assert found["idle GPU"].ok is None
    assert found["memory"].says == "12.0 of 16.0 GB free"


def test_an_installed_package_is_no_repository(model: Path) -> None:
    found = checks(model, lib={"version": "1.2", "file": "/x/site-packages/lib/__init__.py"})
    assert (found["lib"].ok, found["code under test"].ok) == (True, None)
    broken = checks(model, lib={"version": "1.2", "file": "/x/lib/__init__.py", "problem": "hub is too new"})
    assert broken["lib"].says == "1.2 in /x/lib, cannot be imported: hub is too new"
    assert broken["lib"].ok is False


def test_the_repository_of_the_code_is_looked_at(model: Path, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "__init__.py").touch()
    commit = repositories.commit(root)
    about = {"version": "", "file": str(root / "lib" / "__init__.py")}
    found = checks(model, lib=about)
    assert found["code under test"].says == f"lib: {root}, commit {commit[:12]}"
    assert (found["writable"].ok, found["clean"].ok) == (True, True)
    (root / "lib" / "__init__.py").write_text("x = 1\n")
    assert checks(model, lib=about)["clean"].ok is False


def test_variables_are_checked_and_their_values_kept_secret(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", "hf_secret")
    found = checks(model)
    assert (found["KB_TOKEN"].ok, found["KB_TOKEN"].says) == (True, "set")
    assert "hf_secret" not in str(found)


def test_an_idle_gpu_is_wanted(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = GpuSample(0, "GPU-a", "H200", busy=0, processes=(GpuProcess(7, "python"),), memory_used=9, memory_total=10)
    free = GpuSample(1, "GPU-b", "H200", busy=0, processes=(), memory_used=10**9, memory_total=140 * 10**9)
    machine(monkeypatch, Sample(HOST, (busy, free)))
    found = checks(model)
    assert (found["idle GPU"].ok, found["idle GPU"].says) == (True, "cuda:1 H200")
    assert found["GPU memory"].says == "139.0 of 140.0 GB free"
    machine(monkeypatch, Sample(HOST, (busy,)))
    found = checks(model)
    assert found["idle GPU"].ok is False
    assert "used by python (7)" in found["idle GPU"].says


def test_the_command_exits_with_one_while_something_is_missing(model: Path) -> None:
    checks(model)
    python = str(model.parent / "python")
    done = CliRunner().invoke(cli, ["doctor", "--model", "toy", "--python", python])
    assert (done.exit_code, "NO      lib" in done.stdout) == (1, True)
    both = CliRunner().invoke(cli, ["doctor", "--model", "toy", "--repo", "."])
    assert (both.exit_code, "use only one of" in both.output) == (2, True)
