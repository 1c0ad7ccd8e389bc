"""A solution to start with that is not a regular file is refused, in every format."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.shared.regular_file import NotRegular
from kernbench.cli import cli
from kernbench.suites.formats import solution_json
from tests.suites import test_gpu_mode, test_kernelbench, test_plain_file, test_robust_kbench
from tests.suites.test_kernelbench import PROBLEMS

MADE: dict[str, Callable[[Path, Path], object]] = {
    "gpu-mode": lambda folder, own: test_gpu_mode.written(folder, test_gpu_mode.PROBLEMS["plain"], solution=own),
    "kernelbench": lambda folder, own: test_kernelbench.written(folder, "1_activation", solution=own),
    "plain file": lambda folder, own: test_plain_file.written(folder, "softmax", solution=own),
    "robust-kbench": lambda folder, own: test_robust_kbench.written(folder, solution=own),
    "json": lambda _folder, own: solution_json.unpacked(own),
}


@pytest.mark.parametrize("name", MADE)
def test_a_fifo_is_refused(tmp_path: Path, name: str) -> None:
    own = tmp_path / "own.py"
    os.mkfifo(own)
    with pytest.raises(NotRegular, match="is a fifo, not a regular file"):
        MADE[name](tmp_path, own)


def test_import_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("1_relu.py").write_text(PROBLEMS["1_activation"])
    os.mkfifo("own.py")
    done = CliRunner().invoke(cli, ["import", "1_relu.py", "--solution", "own.py"])
    assert "own.py is a fifo, not a regular file" in str(done.exception)
    assert sorted(os.listdir()) == ["1_relu.py", "own.py"]
