"""Sides that stay between runs are judged once for the same inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from harness.run.opponents import Opponents
from harness.shared.run_request import RunRequest
from harness.shared.task import Case, Task, Tolerance

TASK = Task("twice", "twice", "", "", "best", "cpu", 1, (), "reference", {"float32": Tolerance(1e-6, 1e-6)}, (), "")
REFERENCE: Any = SimpleNamespace(entry=lambda x: 2 * x, task=TASK, extra_check=None)


def material(x: torch.Tensor) -> Any:
    return SimpleNamespace(
        reference=REFERENCE,
        case=Case("a", "a"),
        inputs={"x": x},
        truth={"0": 2 * x.double()},
        expected={"0": 2 * x},
        verdicts=WeakKeyDictionary(),
        entry=lambda function: function,
    )


def opponents(best: Callable[..., Any]) -> Opponents:
    request: RunRequest = SimpleNamespace(task=TASK, source="", best="", baseline="best")  # type: ignore[assignment]
    made = Opponents(request, SimpleNamespace(), interpreted=False)  # type: ignore[arg-type]
    made.best = best
    return made


def test_a_best_is_called_once_for_the_same_inputs_and_again_for_others() -> None:
    calls = []

    def twice(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.numel())
        return x + x

    first, second = material(torch.ones(3)), material(torch.ones(5))
    for _ in range(2):  # two runs
        run = opponents(twice)
        assert run.best_is_right(REFERENCE, first)
        assert run.best_is_right(REFERENCE, second)
        found = run.first_baseline(REFERENCE, SimpleNamespace(id="a"), first)  # type: ignore[arg-type]
        assert (found.function, found.largest_error, found.problem, found.missing) == (twice, 0.0, None, None)
    assert calls == [3, 5]


def test_a_baseline_that_is_not_right_stays_and_says_so() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return 2 * x + 1

    found = opponents(wrong).first_baseline(REFERENCE, Case("a", "a"), material(torch.ones(3)))
    assert (found.function, found.problem) == (wrong, "output 0 differs at [0]: got 3, expected 2 (allowed 3e-06)")


def test_what_is_known_of_a_source_goes_with_it() -> None:
    inputs = material(torch.ones(3))
    assert not opponents(lambda x: x + 1.5).best_is_right(REFERENCE, inputs)
    gc.collect()
    assert not inputs.verdicts
    assert opponents(lambda x: x + x).best_is_right(REFERENCE, inputs)


def test_a_best_that_fails_is_no_opponent_and_is_tried_again() -> None:
    answers = iter((RuntimeError("no kernel image"), torch.full((3,), 2.0)))

    def unsteady(x: torch.Tensor) -> torch.Tensor:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    inputs = material(torch.ones(3))
    assert not opponents(unsteady).best_is_right(REFERENCE, inputs)
    assert opponents(unsteady).best_is_right(REFERENCE, inputs)


def test_an_entry_that_takes_no_weak_reference_is_an_opponent_too() -> None:
    class Bare:
        __slots__ = ()

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    assert opponents(Bare()).best_is_right(REFERENCE, material(torch.ones(3)))
