"""The watch on reference.py compares what a Reference holds by identity, so no call may rebind any of it."""

from __future__ import annotations

import types

import torch

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
