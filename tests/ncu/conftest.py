"""One harness folder with the fake worker and the fake target."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import FAKE
from tests.ncu.kept_csv import DATA, HERE


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    """The engine's fake worker and the profiler's fake target, side by side."""
    folder = tmp_path / "harness"
    shutil.copytree(FAKE, folder)
    shutil.copy(HERE / "fake" / "harness" / "target.py", folder)
    return folder


@pytest.fixture
def rms_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU_CSV", str(DATA / "rms_4096x3072.csv"))
