"""A KernelBench problem: `Model`, `get_inputs` and `get_init_inputs` in one file; a solution is a class `ModelNew`.

As KernelBench does it, every model is made after the same seed, from what `get_init_inputs` returns, and called with
the inputs in order. Inputs are drawn on the device, so another generator draws them there, from the same distribution.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch

from harness.foreign.scaling import scaled
from harness.inputs.seeding import seed_everywhere


class Problem:
    """The loaded file; a case with `scale = 16` among its axes has sizes of a sixteenth."""

    def __init__(self, module: types.ModuleType) -> None:
        self._modules: dict[int, dict[str, Any]] = {1: vars(module)}
        self._code = compile(inspect.getsource(module), str(module.__file__), "exec")

    def make_inputs(self, case: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        names = self._scope(case)
        seed_everywhere(seed, device)
        with torch.device(device):
            values = list(names["get_inputs"]())
        values = [value.to(device) if isinstance(value, torch.Tensor) else value for value in values]
        return dict(zip(parameter_names(names["Model"].forward, len(values)), values, strict=True))

    def setup(self, case: dict[str, Any], device: str, dtype: torch.dtype, entry: Any) -> Any:
        """A model of the side: of its class, or of the problem's if the side is the reference."""
        names = self._scope(case)
        made = (entry if isinstance(entry, type) else names["Model"])(*names["get_init_inputs"]())
        return made.to(device=device, dtype=dtype) if isinstance(made, torch.nn.Module) else made

    def _scope(self, case: dict[str, Any]) -> dict[str, Any]:
        """The file's names, with smaller sizes if the case is scaled."""
        scale = int(case.get("scale", 1))
        if scale not in self._modules:
            scope: dict[str, Any] = {"__name__": "problem"}
            exec(self._code, scope)
            scope |= {name: scaled(value, scale) for name, value in scope.items() if not name.startswith("_")}
            self._modules[scale] = scope
        return self._modules[scale]


def parameter_names(forward: Any, count: int) -> list[str]:
    """Names for so many inputs of a method: those of its parameters, as far as they are there."""
    usual = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [name for name, about in inspect.signature(forward).parameters.items() if about.kind in usual][1:]
    return [*found[:count], *(f"input_{number}" for number in range(len(found), count))]
