"""The compile baseline: torch.compile on the task's reference, one copy of it per case."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile on a fresh copy: Dynamo stops after 8 recompilations per code object and then runs eager."""
    import torch

    return torch.compile(_own_copy(function), dynamic=False)


def _own_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(function, types.FunctionType):
        return function
    code, scope, closure = function.__code__.replace(), function.__globals__, function.__closure__
    copy = types.FunctionType(code, scope, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    return copy
