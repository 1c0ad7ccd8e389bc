"""What a run says beside its results."""

from __future__ import annotations

from typing import Any, cast

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
