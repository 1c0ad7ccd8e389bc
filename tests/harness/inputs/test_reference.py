"""The watch on reference.py compares what a Reference holds by identity, so no call may rebind any of it."""

from __future__ import annotations

import types
from dataclasses import replace

import torch

from harness.device.roofline import Traffic
from harness.inputs.reference import Draw, Reference
from harness.load.failure import Paths
from harness.shared.task import Case, Task, Tolerance

TASK = Task("a", "a", "", "", "best", "cpu", 1, (), "reference", {"float32": Tolerance(1e-6, 1e-6)}, (), "")


def test_a_reference_stays_what_it_was_when_it_makes_inputs_and_truth() -> None:
    module = types.ModuleType("reference")
    module.make_inputs = lambda case, seed, device: {"x": torch.ones(3, device=device)}  # type: ignore[attr-defined]
    reference = Reference(TASK, module, lambda x: x + 1, Paths(""))
    held = dict(vars(reference))
    for device in ("cpu", "meta"):
        case = Case(device, device)
        inputs = reference.make(case, Draw(), device)
        outputs, truth = reference.outputs(case, inputs), reference.truth(case, inputs)
        assert {value.device.type for value in (*outputs.values(), *truth.values()) if value is not None} == {device}
    assert [name for name, value in vars(reference).items() if held.get(name) is not value] == []


def test_the_flops_of_an_imported_task_are_counted_once() -> None:
    module, calls = types.ModuleType("reference"), []
    module.make_inputs = lambda case, seed, device: {"x": torch.ones(3, 5, device=device)}  # type: ignore[attr-defined]

    def entry(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.device.type)
        return x @ x.T

    imported = Reference(replace(TASK, origin={"format": "kernelbench"}), module, entry, Paths(""))
    own, case = Reference(TASK, module, entry, Paths("")), Case("a", "a")
    inputs = {name: reference.make(case, Draw(), "meta") for name, reference in (("own", own), ("imported", imported))}
    outputs = imported.outputs(case, inputs["imported"])
    calls.clear()
    for _ in range(2):
        assert imported.traffic(case, inputs["imported"], outputs) == Traffic(60, 36, 2 * 3 * 5 * 3)
    assert own.traffic(case, inputs["own"], outputs) == Traffic(60, 36)
    assert calls == ["meta"]


def test_a_gap_between_rows_is_no_traffic_and_an_expanded_element_counts_once() -> None:
    """Counting the gaps of a slice made honest kernels impossibly fast."""
    module = types.ModuleType("reference")
    wide = torch.ones(4, 10)
    given = {"part": wide[:, :5], "gain": wide[:1, 5:].unsqueeze(0).expand(2, 4, 5)[0]}
    module.make_inputs = lambda case, seed, device: given  # type: ignore[attr-defined]
    reference, case = Reference(TASK, module, lambda part, gain: part * gain, Paths("")), Case("a", "a")
    inputs = reference.make(case, Draw(), "cpu")
    assert inputs["part"].stride() == (10, 1)
    assert reference.traffic(case, inputs, reference.outputs(case, inputs)) == Traffic(4 * 5 * 4 + 5 * 4, 4 * 5 * 4)
