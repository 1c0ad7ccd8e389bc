"""Arguments of any structure are taken apart into leaves and put together again, anew for every call."""

from __future__ import annotations

import types
from typing import Any

import torch

from harness.foreign.taken_apart import taken_apart


def made_twice(value: Any) -> tuple[Any, Any]:
    leaves, build = taken_apart(value)
    return build(leaves), build(leaves)


def test_numbers_and_containers_of_numbers_are_leaves_and_what_else_there_is_is_not() -> None:
    relu = torch.nn.ReLU()
    leaves, build = taken_apart({"x": torch.ones(2), "sizes": [3, 4], "act": relu, "eps": 1e-6})
    assert list(leaves) == ["x", "sizes", "eps"]
    made = build({**leaves, "sizes": [5], "eps": 1e-5})
    assert (made["sizes"], made["eps"], made["act"]) == ([5], 1e-5, relu)


def test_what_a_call_does_to_an_object_does_not_reach_the_next() -> None:
    cache = torch.nn.BatchNorm1d(2, affine=False)
    cache.steps = [0]
    first, second = made_twice(types.SimpleNamespace(cache=cache, calls=[print]))
    first.cache.steps.append(1)
    first.cache.running_mean = torch.full((2,), 7.0)
    first.calls.clear()
    assert second.cache.steps == [0]
    assert second.cache.running_mean.tolist() == [0.0, 0.0]
    assert second.calls == [print]


def test_a_module_names_its_tensors_without_the_places_that_hold_them() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1, affine=False))
    assert list(taken_apart({"layer": layer})[0]) == [
        "layer.0.weight", "layer.0.bias", "layer.1.running_mean", "layer.1.running_var", "layer.1.num_batches_tracked",
    ]  # fmt: skip
