"""Nested arguments become flat leaves with names, and are made again from them."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict, defaultdict
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from harness.inputs import structure
from harness.inputs.calling import CaseEntry, bound


class Pair(NamedTuple):
    left: Any
    right: Any


def test_flat_arguments_are_their_own_leaves() -> None:
    given = {"x": torch.ones(2), "sizes": (3, 4), "eps": 1e-6, "dtype": torch.float32, "bias": None}
    leaves, build = structure.flattened(given)
    assert (leaves, build) == (given, None)


def test_leaves_are_named_by_their_path_and_the_structure_comes_back() -> None:
    x, w, b = torch.ones(1), torch.ones(2), torch.ones(3)
    given = {"x": x, "weights": {"norm": {"weight": w, "eps": 1e-5}}, "pair": Pair([b], None), "rest": (x, 2)}
    leaves, build = structure.flattened(given)
    assert list(leaves) == [
        "x", "weights.norm.weight", "weights.norm.eps", "pair.0.0", "pair.1", "rest.0", "rest.1",
    ]  # fmt: skip
    assert build is not None
    made = build({**leaves, "pair.0.0": w})
    assert type(made["pair"]) is Pair
    assert made["pair"].left[0] is w
    assert made["rest"] == (x, 2)
    assert made["weights"] == given["weights"]


def test_what_a_call_does_to_a_list_does_not_reach_the_next_call() -> None:
    leaves, build = structure.flattened({"sizes": [1, 2]})
    entry = CaseEntry(lambda sizes: sizes.pop(), build)
    assert (entry(**leaves), entry(**leaves), leaves["sizes"]) == (2, 2, [1, 2])
    leaves, build = structure.flattened({"pair": ([1, 2], 3)})
    entry = CaseEntry(lambda pair: pair[0].pop(), build)
    assert (entry(**leaves), entry(**leaves)) == (2, 2)


def test_something_else_is_named() -> None:
    with pytest.raises(structure.BadLeaf, match=r"'weights.norm' is of type Generator"):
        structure.flattened({"x": torch.ones(1), "weights": {"x": torch.ones(1), "norm": torch.Generator()}})
    with pytest.raises(structure.BadLeaf, match=r"'file' is of type \w+, which cannot be copied"):
        structure.flattened({"file": sys.stderr})
    ring: list[Any] = [torch.ones(1)]
    ring.append(ring)
    with pytest.raises(structure.BadLeaf, match="contains itself"):
        structure.flattened({"ring": ring})


@dataclasses.dataclass(frozen=True)
class Sizes:
    rows: int
    scale: torch.Tensor


class Cache(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(2))
        self.norm, self.calls, self.act = torch.nn.Linear(2, 1), [0], torch.nn.ReLU()


def test_objects_are_taken_apart_and_made_anew_for_every_call() -> None:
    leaves, build = structure.flattened({"data": (Sizes(3, torch.ones(1)), Cache())})
    assert {name: str(leaf) for name, leaf in leaves.items() if not isinstance(leaf, torch.Tensor)} == {
        "data.0": "Sizes", "data.1": "Cache", "data.1.norm": "Linear", "data.1.act": "ReLU",
    }  # fmt: skip
    assert [name for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)] == [
        "data.0.scale", "data.1.kept", "data.1.norm.weight", "data.1.norm.bias",
    ]  # fmt: skip
    assert type(leaves["data.1.norm.weight"]) is torch.Tensor
    assert build is not None
    (sizes, first), (_, second) = build(leaves)["data"], build(leaves)["data"]
    assert (sizes.rows, sizes.scale) == (3, leaves["data.0.scale"])
    assert first.kept is second.kept is leaves["data.1.kept"]
    first.calls.append(1)
    first.kept = torch.zeros(2)
    first.act.inplace = True
    assert (second.calls, second.kept.tolist(), second.act.inplace) == ([0], [1.0, 1.0], False)
    assert first.norm(torch.ones(2)).shape == (1,)


def test_what_a_call_does_to_an_object_without_tensors_does_not_reach_the_next() -> None:
    leaves, build = structure.flattened({"settings": SimpleNamespace(scale=2.0)})
    entry = CaseEntry(lambda settings: vars(settings).popitem(), build)
    assert (entry(**leaves), entry(**leaves)) == (("scale", 2.0), ("scale", 2.0))


def test_two_leaves_of_one_name_are_refused() -> None:
    with pytest.raises(structure.BadLeaf, match=r"'a\.b' is there twice"):
        structure.flattened({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)})


def test_the_state_comes_first_and_the_arguments_are_put_together_once() -> None:
    seen: list[Any] = []
    leaves, build = structure.flattened({"xs": [torch.ones(1)]})
    call = bound(CaseEntry(lambda *values, **named: seen.append((values, named)), build, "state"), leaves)
    call()
    call()
    assert seen[0][0] == ("state",)
    assert seen[0][1]["xs"] is seen[1][1]["xs"]


class Hides(list[Any]):
    """Shows something else to code that asks for its class."""

    def __iter__(self) -> Any:
        return iter(["hidden"])

    def __len__(self) -> int:
        return 0


class HidesToo(dict[str, Any]):
    def items(self) -> Any:
        return [("other", "hidden")]

    def __getitem__(self, name: str) -> Any:
        return "hidden"


class Pretends:
    """Says that it is a dict."""

    __class__ = dict  # type: ignore[assignment]

    def items(self) -> Any:
        return [("y", "hidden")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Pair("l", ("r", 1)), ["l", ["r", 1]]),
        (Hides(["x", Hides()]), ["x", []]),
        (HidesToo(y="y"), {"y": "y"}),
        (OrderedDict(y="y", z=[1]), {"y": "y", "z": [1]}),
        (defaultdict(list, {3: "y"}), {"3": "y"}),
        (torch.Size((3, 4)), [3, 4]),
        (torch.return_types.sort(("v", "i")), ["v", "i"]),  # type: ignore[attr-defined]
        ("text", "text"),
    ],
)
def test_a_derived_class_is_read_as_its_built_in_one(value: Any, expected: Any) -> None:
    assert structure.plain(value) == expected
    doubled = structure.plain(value, lambda leaf: 2 * leaf)
    assert doubled == structure.plain(expected, lambda leaf: 2 * leaf)


def test_what_only_says_that_it_is_a_container_is_none() -> None:
    value = Pretends()
    assert isinstance(value, dict)
    assert structure.plain(value) is value
