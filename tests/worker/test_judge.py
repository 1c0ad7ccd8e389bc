"""A confirmation with the real worker and the real judge: what is right is judged right, and what is not is found."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from harness.shared.lines import to_dict
from harness.shared.run_request import RunRequest
from kernbench.worker.process import WorkerLost
from kernbench.worker.supervisor import Supervisor
from tests.faults.workbench import REFERENCE, write_task

RIGHT = """
import torch

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
SOMETIMES = """
import random
import torch

def softmax(x):
    y = torch.softmax(x, dim=-1)
    return y * 2 if random.random() < 0.05 else y
"""
NAMED = """
from typing import NamedTuple
import torch

class Result(NamedTuple):
    y: torch.Tensor

def softmax(x):
    return Result(torch.softmax(x, dim=-1))
"""
ORDERED = """
from collections import OrderedDict
import torch

def softmax(x):
    return OrderedDict(y=torch.softmax(x, dim=-1))
"""
HIDDEN = """
import torch

class Result(list):
    def __iter__(self):
        return iter([torch.softmax(self.x, dim=-1)])

def softmax(x):
    result = Result([torch.zeros_like(x)])
    result.x = x.clone()
    return result
"""
SLOWED = """
import sys
import time
import torch

def softmax(x):
    return torch.softmax(x, dim=-1)

def slowly(x, *, torch=torch, time=time):
    time.sleep(0.001)
    return torch.softmax(x, dim=-1)

for name, module in list(sys.modules.items()):
    if name.startswith("_kb_reference") and hasattr(module, "softmax"):
        module.softmax.__code__, module.softmax.__kwdefaults__ = slowly.__code__, slowly.__kwdefaults__
"""
BRIEFLY = SLOWED.replace("time=time):", "time=time, end=time.monotonic() + 1.2):").replace(
    "time.sleep(0.001)", "time.monotonic() > end or time.sleep(0.001)"
)
"""As if the machine were slower for a moment."""
LARGE = f"""
import sys
{REFERENCE}
def truth(x):
    if "harness.judge" in sys.modules:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.00 GiB")
    return softmax(x.double())
"""
"""A reference whose exact results only the worker has room for."""


def confirm(folder: Path, *tasks: dict[str, str]) -> list[list[Any]]:
    """The messages of a confirmation of each task, all with one judge. A task is the files that are not the usual."""

    async def work() -> list[list[Any]]:
        supervisor, answers = Supervisor("cpu", lambda event: None), []
        for number, files in enumerate(tasks):
            place = write_task(folder / str(number) / "softmax", **files)
            task = taskfile.load(place)
            request = RunRequest(
                run=f"confirm-{number}", task=task, source=str(place), cases=tuple(case.id for case in task.timed),
                seed=11, budget_ms=20.0, build=str(folder / "build"),
            )  # fmt: skip
            answers.append([message async for message in supervisor.confirm(to_dict(request))])
        await supervisor.close()
        return answers

    return asyncio.run(work())


def judged(messages: list[Any]) -> dict[str, tuple[int, str | None]]:
    found = [message for message in messages if isinstance(message, dict) and message["event"] == "judged"]
    return {message["case"]: (message["calls"], message["problem"]) for message in found}


def findings(messages: list[Any]) -> set[str]:
    rows = [message["result"] for message in messages if message["event"] == "case"]
    return {finding["code"] for row in rows for finding in row.get("findings", ())}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    tasks = [{"solution_py": text} for text in (RIGHT, SOMETIMES, SLOWED, "def softmax(:\n", RIGHT)]
    others = [{"solution_py": text} for text in (NAMED, ORDERED, HIDDEN)]
    return confirm(tmp_path_factory.mktemp("judge"), *tasks, *others, {"solution_py": RIGHT, "reference_py": LARGE})


def test_a_right_source_is_judged_right_in_at_least_a_hundred_calls(answers: list[list[Any]]) -> None:
    for messages in (answers[0], answers[4]):
        found = judged(messages)
        assert {problem for _calls, problem in found.values()} == {None}
        assert sum(calls for calls, _problem in found.values()) >= 100
        assert [message["result"]["status"] for message in messages if message["event"] == "case"] == ["ok"] * len(
            found
        )
        assert messages[-1]["event"] == "finished"


def test_one_that_is_wrong_in_one_of_twenty_calls_is_found(answers: list[list[Any]]) -> None:
    assert any("differs" in (problem or "") for _calls, problem in judged(answers[1]).values())


def test_results_in_any_container_that_a_run_accepts_are_judged(answers: list[list[Any]]) -> None:
    for messages in answers[5:7]:
        assert {problem for _calls, problem in judged(messages).values()} == {None}


def test_a_container_is_judged_by_what_is_in_it(answers: list[list[Any]]) -> None:
    assert all("got 0, expected" in (problem or "") for _calls, problem in judged(answers[7]).values())


def test_a_baseline_that_the_source_slows_down_is_found(answers: list[list[Any]]) -> None:
    assert "opponent_slowed" in findings(answers[2])


@pytest.mark.long
def test_a_baseline_that_is_slower_for_a_moment_is_timed_again(tmp_path: Path) -> None:
    (messages,) = confirm(tmp_path, {"solution_py": BRIEFLY})
    assert "opponent_slowed" not in findings(messages)


def test_one_that_does_not_load_fails(answers: list[list[Any]]) -> None:
    assert answers[3][-1]["event"] == "failed"


def test_a_judge_that_runs_out_of_memory_says_so(answers: list[list[Any]]) -> None:
    """When the judge dies, the worker must not report the broken connection as its own error."""
    lost = answers[-1][-1]
    assert isinstance(lost, WorkerLost)
    assert lost.detail.startswith("the judge could not judge it: ")
    assert "out of memory" in lost.detail


def test_a_judge_that_ends_is_reported(tmp_path: Path) -> None:
    async def work() -> list[Any]:
        supervisor = Supervisor("cpu", lambda event: None)
        place = write_task(tmp_path / "softmax", reference_py=f"{REFERENCE}\nimport os\nos._exit(7)\n")
        task = taskfile.load(place)
        request = RunRequest(run="confirm-x", task=task, source=str(place), cases=tuple(c.id for c in task.timed))
        found = [message async for message in supervisor.confirm(to_dict(request))]
        await supervisor.close()
        return found

    (lost,) = asyncio.run(work())
    assert isinstance(lost, WorkerLost)
    assert lost.detail == "the judge exited with code 7"
