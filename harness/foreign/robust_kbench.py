"""A robust-kbench problem: `Model` has the weights and calls a function with them, `forward_fn` or a solution's.

As robust-kbench does it, every side has its own model, made after the same seed and called as `model(*inputs,
fn=function)` without gradients. Each case says which arguments `Model` and `get_inputs` get.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from harness.foreign.kernelbench import parameter_names
from harness.foreign.scaling import scaled
from harness.inputs.seeding import seed_everywhere


class Problem:
    """The loaded file; a case with `scale = 16` among its axes has sizes of a sixteenth."""

    def __init__(self, module: types.ModuleType) -> None:
        self._model, self._get_inputs = module.Model, module.get_inputs

    def make_inputs(self, case: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        seed_everywhere(seed, device)
        with torch.device(device):
            values = self._get_inputs(**_settings(self._get_inputs, case, "inputs"))
        values = [value.to(device) if isinstance(value, torch.Tensor) else value for value in values]
        return dict(zip(parameter_names(self._model.forward, len(values)), values, strict=True))

    def setup(self, case: dict[str, Any], device: str, dtype: torch.dtype, entry: Any) -> Callable[..., Any]:
        """A model of the side, which calls the side's function."""
        model = self._model(**_settings(self._model, case, "init")).to(device=device, dtype=dtype)
        model.requires_grad_(False)
        return lambda **inputs: model(*inputs.values(), fn=entry)


def _settings(function: Callable[..., Any], case: dict[str, Any], kind: str) -> dict[str, Any]:
    """The case's arguments for a function, as far as it takes them, and its defaults, which are scaled too."""
    accepted = inspect.signature(function).parameters
    found = {name: item.default for name, item in accepted.items() if item.default is not inspect.Parameter.empty}
    found |= {name: value for name, value in case[kind].items() if name in accepted}
    scale = int(case.get("scale", 1))
    return {name: scaled(value, scale) for name, value in found.items()} if scale > 1 else found
