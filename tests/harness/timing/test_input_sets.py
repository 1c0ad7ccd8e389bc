"""Input sets for timing: layouts kept, everything touched in turn, mutated inputs restored."""

from __future__ import annotations

import math

import pytest
import torch

from harness.device import environment
from harness.timing.input_sets import CpuRotation, Rules


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "last_level_cache", lambda: 1 << 16)


def masters() -> list[dict[str, object]]:
    made = []
    for seed in range(2):
        base = torch.arange(4096.0).view(64, 64) + seed
        made.append({"x": base[3:60, 5:50:3], "row": torch.arange(7.0).expand(3, 7), "n": 5, "bias": None})
    return made


def test_sliced_inputs_keep_strides_values_and_alignment() -> None:
    rotation = CpuRotation(masters(), Rules(), 2)
    for _ in range(2 * rotation.count):
        working = rotation.take()
        master = masters()[working.master]
        for name in ("x", "row"):
            got, wanted = working.inputs[name], master[name]
            assert isinstance(wanted, torch.Tensor)
            assert got.stride() == wanted.stride()
            assert torch.equal(got, wanted)
            assert (got.data_ptr() - wanted.data_ptr()) % 64 == 0
        assert (working.inputs["n"], working.inputs["bias"]) == (5, None)


def test_a_set_comes_again_only_after_twice_the_cache() -> None:
    rotation = CpuRotation(masters(), Rules(), 3)
    order = [rotation.take().inputs["x"].data_ptr() for _ in range(2 * rotation.count)]
    assert len(set(order)) == rotation.count
    assert order[: rotation.count] == order[rotation.count :]
    assert rotation.bytes >= 2 * environment.last_level_cache()


@pytest.mark.parametrize("sides", [2, 3])
def test_every_side_works_on_every_set(sides: int) -> None:
    rotation = CpuRotation(masters(), Rules(), sides)
    assert math.gcd(rotation.count, 2 * sides) == 1


def test_sets_do_not_overlap_and_both_masters_are_used() -> None:
    rotation = CpuRotation(masters(), Rules(), 2)
    sets = [rotation.take() for _ in range(rotation.count)]
    assert {working.master for working in sets} == {0, 1}
    sets[0].inputs["x"].zero_()
    assert torch.equal(sets[1].inputs["x"], masters()[sets[1].master]["x"])  # type: ignore[arg-type]


def test_mutated_inputs_are_restored_before_each_call() -> None:
    rotation = CpuRotation(masters(), Rules(("x",)), 2)
    working = rotation.take()
    working.inputs["x"].zero_()
    working.restore()
    assert torch.equal(working.inputs["x"], masters()[working.master]["x"])  # type: ignore[arg-type]


def test_tiny_and_empty_inputs_are_no_trouble() -> None:
    for value in (torch.tensor(1.0), torch.empty(0, 4), 3):
        rotation = CpuRotation([{"x": value}], Rules(), 2)
        assert rotation.bytes <= 4 * environment.last_level_cache()
        rotation.take()


def test_a_refilled_set_has_the_old_addresses_and_other_values() -> None:
    rotation = CpuRotation(masters(), Rules(), 2)
    working = rotation.take()
    address = working.inputs["x"].data_ptr()
    before = working.master
    rotation.refill(working)
    assert working.master != before
    assert working.inputs["x"].data_ptr() == address
    assert torch.equal(working.inputs["x"], masters()[working.master]["x"])  # type: ignore[arg-type]
