"""Other values for the same inputs: made again from the lot, undone exactly, and only where values may vary."""

from __future__ import annotations

import pytest
import torch

from harness.inputs import variation
from harness.inputs.reference import copies

LOT = 0x1234_5678_9ABC


def master() -> dict[str, object]:
    generator = torch.Generator().manual_seed(1)
    wide = torch.randn(70, 96, generator=generator)
    return {
        "x": torch.randn(300, 700, generator=generator),
        "sliced": wide[3:60, 5:50],
        "half": torch.randn(999, generator=generator).to(torch.bfloat16),
        "places": torch.arange(640),
        "spread out": torch.arange(7.0).expand(3, 7),
        "one": torch.ones(1),
        "factor": 2.0,
    }


def varied(values: dict[str, object], lot: int) -> dict[str, object]:
    return variation.varied(values, lot, variation.free_names([values]))


def test_a_lot_changes_floating_values_and_nothing_else() -> None:
    before, made = master(), varied(master(), LOT)
    changed = {
        name: int((made[name] != value).sum()) for name, value in before.items() if isinstance(value, torch.Tensor)
    }
    assert 300 * 700 // 100 < changed["x"] < 300 * 700 // 50
    assert changed["sliced"] > 0 < changed["half"]
    assert [changed[name] for name in ("places", "spread out", "one")] == [0, 0, 0]
    assert made["factor"] == 2.0


def test_values_come_from_the_same_tensor() -> None:
    x = master()["x"]
    assert isinstance(x, torch.Tensor)
    assert set(varied({"x": x}, LOT)["x"].unique().tolist()) <= set(x.unique().tolist())


def test_what_is_between_the_rows_of_a_slice_is_not_touched() -> None:
    wide = torch.arange(64.0 * 64).view(64, 64)
    inputs = {"x": wide.clone()[:, 8:40]}
    for strips in variation.strips(inputs, {"x": wide[:, 8:40]}, frozenset({"x"})).values():
        strips.put(LOT)
    whole = inputs["x"]._base
    assert whole is not None
    assert torch.equal(whole[:, :8], wide[:, :8])
    assert torch.equal(whole[:, 40:], wide[:, 40:])
    assert not torch.equal(whole, wide)


@pytest.mark.parametrize("lot", [1, 2, 77, variation.LOTS - 1])
def test_a_lot_is_undone_exactly_and_the_next_one_depends_on_itself_alone(lot: int) -> None:
    values = master()
    inputs = copies(values)
    for strips in variation.strips(inputs, values, variation.free_names([values])).values():
        strips.put(LOT)
        strips.undo(LOT)
    assert all(_same(inputs[name], values[name]) for name in values)
    for strips in variation.strips(inputs, values, variation.free_names([values])).values():
        strips.put(LOT)
        strips.undo(LOT)
        strips.put(lot)
    again = varied(values, lot)
    assert all(_same(inputs[name], again[name]) for name in values)


def test_what_has_a_structure_keeps_its_values() -> None:
    x = torch.randn(64, 64)
    mask = torch.zeros(64, 64).masked_fill(torch.rand(64, 64) < 0.5, float("-inf"))
    structured = {"triangle": x.tril(), "symmetric": x + x.T, "mask": mask, "sparse": x * (x > 1)}
    assert variation.free_names([structured]) == frozenset()
    assert variation.free_names([{"x": x, "half": torch.rand(999).to(torch.bfloat16)}]) == {"x", "half"}


def test_only_what_varies_in_every_master_varies() -> None:
    x = torch.randn(64, 32)
    assert variation.free_names([{"a": x, "b": x}, {"a": x, "b": x * 0}]) == {"a"}


def test_lots_differ() -> None:
    made = [varied(master(), lot)["half"] for lot in range(1, 40)]
    assert len({tuple(value.tolist()) for value in made}) > 35


def _same(one: object, other: object) -> bool:
    return (
        torch.equal(one, other) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) else one == other
    )


def test_no_long_stretch_stays_the_same() -> None:
    """Otherwise most rows of a result could be kept from an earlier call, and the few others computed."""
    for shape in ((48, 512), (300, 700), (1000, 1024)):
        x = torch.randn(shape)
        made = varied({"x": x}, LOT)["x"]
        assert isinstance(made, torch.Tensor)
        same = (made == x).view(-1).tolist()
        longest = max(map(len, "".join("s" if item else "c" for item in same).split("c")))
        assert longest < 2 * variation.CHUNK


def test_a_few_values_are_wide_among_usual_ones() -> None:
    values = master()
    made = variation.with_outliers(values, variation.free_names([values]), 1, 64.0)
    before, after = values["x"], made["x"]
    assert isinstance(before, torch.Tensor)
    assert isinstance(after, torch.Tensor)
    changed = before != after
    assert 1 <= int(changed.sum()) <= variation.OUTLIERS
    assert (after[changed].abs() >= 0.74 * before.abs().max() * 64).all()
    assert made["factor"] == 2.0
