"""What a run says beside its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from harness.shared import used_files
from kernbench.engine.runner import Runner
from kernbench.events import Event, Notice


def test_without_a_gpu_a_cuda_file_is_said_to_be_unseen_once() -> None:
    heard: list[Event] = []
    runner = Runner(cast(Any, None), cast(Any, None), heard.append)
    runner._tell_of_cuda([])
    assert heard == []
    for _ in range(2):
        runner._tell_of_cuda(["solution.cu"])
    assert heard == [Notice("no GPU here: not compiling solution.cu, checking only the CPU path")]


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("from harness import cuda\n", ["solution.cu"]),
        ("from harness.cuda import load\n", ["solution.cu"]),
        ("import subprocess\nsubprocess.run(['nvcc', 'solution.cu'])  # unlike harness.cuda\n", []),
    ],
)
def test_a_cuda_file_is_unseen_only_by_a_source_of_harness_cuda(tmp_path: Path, source: str, files: list[str]) -> None:
    (tmp_path / "solution.cu").write_text("")
    (tmp_path / "solution.py").write_text(source)
    assert used_files.for_a_gpu(tmp_path) == files
