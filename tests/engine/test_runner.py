"""What a run says beside its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kernbench.engine.runner import Runner
from kernbench.events import Event, Notice
from kernbench.task.snapshot import take


def test_without_a_gpu_a_cuda_file_is_said_to_be_unseen_once(tmp_path: Path) -> None:
    heard: list[Event] = []
    runner = Runner(cast(Any, None), cast(Any, None), heard.append)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "solution.py").write_text("")
    runner._tell_of_cuda(take(tmp_path / "task", tmp_path / "state"))
    assert heard == []
    (tmp_path / "task" / "solution.cu").write_text("")
    for _ in range(2):
        runner._tell_of_cuda(take(tmp_path / "task", tmp_path / "state"))
    assert heard == [Notice("no GPU here: not compiling solution.cu, checking only the CPU path")]
