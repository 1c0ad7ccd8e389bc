"""A plain Python file: its own function makes the inputs, as a tuple or list in order or as a dict by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.inputs.seeding import seed_everywhere


def inputs_from(function: Callable[[], Any], reference: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """`make_inputs` of a task; the reference's parameters name what comes in order."""

    def make_inputs(case: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        seed_everywhere(seed, device)
        with torch.device(device), Redirected(device):
            values = function()
        if isinstance(values, dict):
            return values
        if not isinstance(values, (tuple, list)):
            kind = type(values).__name__
            raise TypeError(f"{function.__name__} must return a tuple, list or dict of arguments, and returned {kind}")
        return dict(zip(inspect.signature(reference).parameters, values, strict=False))

    return make_inputs


class Redirected(TorchFunctionMode):
    """What names "cuda" gets the task's device, so that inputs written for a GPU can be made without one."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0].to(self._device)
        named = {name: self._here(value) for name, value in (kwargs or {}).items()}
        return func(*map(self._here, args), **named)

    def _here(self, value: Any) -> Any:
        is_cuda = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda"
        return self._device if is_cuda else value
