"""Truth in pieces is the same truth."""

from __future__ import annotations

import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.inputs import rowwise
from harness.inputs.reference import Draw, Reference
from harness.inputs.rowwise import Inputs, Outputs
from harness.load.failure import BadTask, Paths
from harness.shared.task import Case


def modulated(inputs: Inputs) -> Outputs:
    """Row-wise in x and gate; weight belongs to all rows."""
    x, gate, weight = (inputs[name].double() for name in ("x", "gate", "weight"))
    return {"y": x * gate * weight, "sums": x.sum(dim=-1), "none": None}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise, "LARGE", 0)
    monkeypatch.setattr(rowwise, "PIECE", 24)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("lead", [(), (1,), (7,)])
@pytest.mark.parametrize("broadcast", [False, True])
def test_pieces_make_the_whole(lead: tuple[int, ...], broadcast: bool) -> None:
    x = torch.randn(*lead, 7, 8)
    gate = torch.randn(*(1 for _ in lead), 1, 8) if broadcast else torch.randn(*lead, 7, 8)
    inputs = {"x": x, "gate": gate, "weight": torch.randn(8), "eps": 1e-6}
    sizes: list[int] = []

    def run(piece: Inputs) -> Outputs:
        sizes.append(piece["x"].numel())
        return modulated(piece)

    found, expected = rowwise.in_pieces(run, inputs, ("x", "gate")), modulated(inputs)
    assert len(sizes) > 1
    assert max(sizes) <= max(24, 8 * 7 * (len(lead) == 1 and lead[0] == 7))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        got = found[name]
        assert (got is None) == (value is None)
        assert value is None or (got is not None and torch.equal(got, value))


def test_what_is_small_or_not_declared_is_taken_whole() -> None:
    inputs = {"x": torch.randn(4, 8), "gate": torch.randn(4, 8), "weight": torch.randn(8)}
    calls: list[Inputs] = []

    def run(piece: Inputs) -> Outputs:
        calls.append(piece)
        return modulated(piece)

    rowwise.in_pieces(run, inputs, ("x", "gate"))
    rowwise.in_pieces(run, inputs, ())
    assert calls == [inputs, inputs]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("reduced", [lambda x: x.sum(dim=0, keepdim=True), torch.sum], ids=["one row", "no row"])
def test_an_output_without_a_row_for_every_row_is_the_tasks_mistake(reduced: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(BadTask, match=r"task.toml: rowwise: 3 rows gave total of shape \[.*dimension 0"):
        rowwise.in_pieces(lambda piece: {"total": reduced(piece["x"])}, {"x": torch.randn(7, 8)}, ("x",))


@pytest.mark.parametrize("key", ["mutates", "outputs", "rowwise"])
def test_a_name_that_no_input_has_is_a_mistake_in_the_task(key: str) -> None:
    source = types.ModuleType("reference")
    source.make_inputs = lambda case, seed, device: {"x": torch.ones(2), "bias": None}  # type: ignore[attr-defined]
    task: Any = SimpleNamespace(**{"mutates": (), "outputs": (), "rowwise": ("bias",), key: ("zork",)})
    reference = Reference(task, source, modulated, Paths("", "", None))
    with pytest.raises(BadTask, match=rf"^task.toml: {key}: make_inputs returned no \w+ 'zork' for case a$"):
        reference.make(Case("a", "a"), Draw(), "cpu")
