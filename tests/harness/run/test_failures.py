"""What a row says when something was raised on the way to it, and what is given back then."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from harness.inputs.cache import RunCache
from harness.load.failure import Paths
from harness.run import failures
from harness.run.failures import CaseFailures
from harness.shared.run_request import Environment
from harness.shared.task import Case
from harness.timing.blocks import SideFailed

GIB = 2**30
FULL = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.81 GiB"


@pytest.mark.parametrize(
    ("message", "found"),
    [(FULL, 3 * GIB // 2), ("Tried to allocate 20.00 MiB", 20 << 20), ("Tried to allocate 512 bytes", 0), ("full", 0)],
)
def test_what_torch_was_asked_for(message: str, found: int) -> None:
    assert failures.asked_for(message) == found


def raised(device: str, problem: BaseException) -> Any:
    return CaseFailures(Environment(device=device), Paths("/task"), RunCache()).row(Case("big", "big"), problem)


def test_a_case_that_does_not_fit_is_skipped_and_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is counted by what is alive of it: 10 GiB that stay, and 4 that this case had taken."""
    taken: list[weakref.ref[Any]] = []

    class Four:
        pass

    def call() -> None:
        tensor = Four()
        taken.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError(FULL)

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: (14 if taken[0]() else 10) * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5 * GIB, 16 * GIB))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    try:
        call()
    except torch.OutOfMemoryError as problem:
        result = raised("cuda:0", problem)
    assert (result.status, result.reason) == ("skipped", "too_large")
    assert result.detail == "needs at least 5.5 GiB, 5.0 GiB free"
    assert raised("cpu", torch.OutOfMemoryError("full")).reason == "out_of_memory"


def test_memory_that_runs_out_in_the_solution_is_its_own_failure() -> None:
    failure = SideFailed("solution")
    failure.__cause__ = torch.OutOfMemoryError(FULL)
    assert raised("cuda:0", failure).status == "runtime_error"
