"""The compile baseline: torch.compile on the task's reference, one copy of it per case.

Loading the compiler takes seconds. A worker does it ahead, while it waits (`load`); if a run needs it sooner, the first
compile finishes the job, and `on_loaded` reports it in both cases.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Callable
from typing import Any

from harness.private import torch_private

_pieces = list(torch_private.COMPILE_IMPORTS)
_waiting: list[Callable[[], None]] = []


def on_loaded(callback: Callable[[], None]) -> None:
    """Calls it once, as soon as the compiler is loaded."""
    _waiting.append(callback)


def load(may_go_on: Callable[[], bool] = lambda: True) -> None:
    """Imports the compiler in pieces, as long as it may go on."""
    while _pieces:
        if not may_go_on():
            return
        with contextlib.suppress(Exception):  # a failure shows up again on use
            importlib.import_module(_pieces.pop(0))
    while _waiting:
        _waiting.pop()()


def load_by_compiling(device: str) -> None:
    """Loads the rest with a throwaway compile, so that the first row does not have to wait for it."""
    if not _waiting:
        return
    import torch

    with contextlib.suppress(Exception):
        torch.compile(_throwaway, dynamic=False)(torch.zeros(8, device=device))
    load()


def _throwaway(x: Any) -> Any:
    return x + 1


def compiled(function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
    """torch.compile on a fresh copy: Dynamo stops after 8 recompilations per code object and then runs eager."""
    import torch

    return torch.compile(_own_copy(function), dynamic=False, mode=mode)


def _own_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(function, types.FunctionType):
        return function
    code, scope, closure = function.__code__.replace(), function.__globals__, function.__closure__
    copy = types.FunctionType(code, scope, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    return copy
