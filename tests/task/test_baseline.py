"""Baselines by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernbench.task.baseline import Baseline


def test_a_file_below_the_current_folder_is_named_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Baseline("solution.py@0123", tmp_path / "old" / "solution.py").option == "old/solution.py"
    assert Baseline("solution.py@0123", tmp_path.parent / "solution.py").option == str(tmp_path.parent / "solution.py")
