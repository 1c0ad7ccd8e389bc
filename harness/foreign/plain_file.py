"""A plain Python file: its own function makes the inputs, as a tuple or list in order or as a dict by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from harness.foreign.cuda_as_cpu import read_as
from harness.inputs.seeding import seed_everywhere


def inputs_from(function: Callable[[], Any], reference: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """`make_inputs` of a task; the reference's parameters name what comes in order."""

    def make_inputs(case: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        seed_everywhere(seed, device)
        with torch.device(device), read_as(device):
            values = function()
        if isinstance(values, dict):
            return values
        if not isinstance(values, (tuple, list)):
            kind = type(values).__name__
            raise TypeError(f"{function.__name__} must return a tuple, list or dict of arguments, and returned {kind}")
        names = list(inspect.signature(reference).parameters)
        if len(values) > len(names):
            raise TypeError(f"{function.__name__} returned {len(values)} values for {len(names)} parameters")
        return dict(zip(names, values, strict=False))

    return make_inputs
