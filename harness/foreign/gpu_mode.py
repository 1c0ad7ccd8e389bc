"""A GPU MODE problem: `ref_kernel(data)`, `generate_input(**arguments)` and `check_implementation(data, output)`.

These files say "cuda" wherever a tensor is made. For a task on the CPU that is read as "cpu", while inputs are made and
checked and while a side is called, whichever it is. On a GPU nothing is changed.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from harness.foreign.cuda_as_cpu import read_as
from harness.inputs import structure
from harness.inputs.reference import Inputs, copies
from harness.load.exception_text import one_line

SEEDS = 1 << 16
"""The suite's own seeds are small numbers, and some problems add them to their values."""


class Problem:
    """The loaded file; the axes of a case are the arguments of `generate_input`, without the seed."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._takes_seed = "seed" in inspect.signature(module.generate_input).parameters
        self._builds: dict[str, structure.Build | None] = {}
        """By case: how to make `data` again from its leaves."""
        self._devices: dict[str, str] = {}

    def make_inputs(self, case: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        own = {"seed": seed % SEEDS} if self._takes_seed else {}
        self._devices[repr(case)] = device
        with read_as(device):
            made = {"data": self._module.generate_input(**case, **own)}
        with contextlib.suppress(structure.BadLeaf):  # kernbench says so, with the case's name
            self._builds[repr(case)] = structure.flattened(made)[1]
        return made

    def setup(self, case: dict[str, Any], device: str, dtype: torch.dtype, entry: Callable[[Any], Any]) -> Any:
        """What is called in the entry's place: its parameter may have any name."""
        if device != "cpu":
            return lambda data: entry(data)

        def on_cpu(data: Any) -> Any:
            with read_as(device):
                return entry(data)

        return on_cpu

    def check(self, axes: dict[str, Any], inputs: Inputs, outputs: Any) -> list[tuple[str, float, float]]:
        """The suite's own verdict. It may call `ref_kernel`, which writes to its data, so it gets a copy."""
        build, own = self._builds[repr(axes)], copies(inputs)
        data = own["data"] if build is None else build(own)["data"]
        given = tuple(outputs) if isinstance(outputs, list) else outputs  # as which kernbench keeps a tuple
        with read_as(self._devices[repr(axes)]):
            said = self._module.check_implementation(data, given)
        good, message = said if isinstance(said, tuple) else (not said, said)
        return [] if good else [(one_line(str(message)) or "check_implementation", 1.0, 0.0)]
