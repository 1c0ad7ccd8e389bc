"""States go with the side that they belong to."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch

from harness.inputs.states import States
from harness.shared.task import Case

CASE = Case("a", "a")


def test_a_state_is_made_once_per_side_and_case_from_the_same_seed() -> None:
    states = States(lambda case, device, dtype: torch.rand(3, dtype=dtype))
    torch.manual_seed(7)
    wanted = torch.rand(1)
    torch.manual_seed(7)
    first, second = (states.of(function, CASE, "cpu", torch.float32) for function in (max, min))
    assert torch.equal(first, second)
    assert first is not second
    assert states.of(max, CASE, "cpu", torch.float32) is first
    assert torch.equal(torch.rand(1), wanted)  # what a call draws does not depend on it
    assert states.nbytes(max, CASE, torch.float32) == 12


def test_the_instances_of_a_class_are_forgotten_with_its_side() -> None:
    class Model(torch.nn.Module):
        pass

    Model.__module__ = "_kb_solution_1.solution"
    states = States(lambda case, device, dtype, entry: entry())
    made = weakref.ref(states.of(Model, CASE, "cpu", torch.float32))
    states.forget("_kb_solution_2")
    gc.collect()
    assert made() is not None
    states.forget("_kb_solution_1")
    gc.collect()
    assert made() is None


def test_states_that_take_too_much_room_are_made_again() -> None:
    states = States(lambda case, device, dtype: [torch.rand(100, dtype=dtype)])
    first = states.of(max, CASE, "cpu", torch.float32)
    states.trim(400)
    assert states.of(max, CASE, "cpu", torch.float32) is first
    states.trim(399)
    assert states.of(max, CASE, "cpu", torch.float32) is not first


def test_a_function_that_setup_returns_for_an_entry_is_called_in_its_place() -> None:
    states = States(lambda case, device, dtype, entry: (lambda x: entry(x, 0)) if entry is max else entry)
    for function in (max, min):
        assert states.replaces(function, states.of(function, CASE, "cpu", torch.float32))
    assert states.of(max, CASE, "cpu", torch.float32)(-3) == 0
    plain = States(lambda case, device, dtype: min)
    assert not plain.replaces(max, plain.of(max, CASE, "cpu", torch.float32))


def test_what_such_a_function_keeps_counts_as_read() -> None:
    def setup(case: object, device: str, dtype: torch.dtype, entry: Callable[..., Any]) -> Callable[..., Any]:
        model = torch.nn.Linear(4, 2, dtype=dtype)
        return lambda x: entry(model(x))

    states = States(setup)
    states.of(max, CASE, "cpu", torch.float32)
    assert states.nbytes(max, CASE, torch.float32) == (4 * 2 + 2) * 4
