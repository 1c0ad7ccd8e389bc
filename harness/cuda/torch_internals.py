"""The private names of torch that make launches faster; a missing one is replaced by torch's public API.

Looked up when a launcher or a plan is made, never during a launch.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import torch

_STREAM, _DEVICE = "torch._C:_cuda_getCurrentRawStream", "torch._C:_cuda_getDevice"
_GUARDS, _EMPTY = "torch._C._dynamo.guards:TensorGuards", "torch._C._dynamo.guards:_empty_strided_cuda"
_MODES = "torch._C:_len_torch_dispatch_stack"
_SLOWER = "a launch with harness.cuda takes more host time"
WITHOUT = dict.fromkeys((_STREAM, _DEVICE, _GUARDS, _EMPTY, _MODES), _SLOWER)
"""Every name, with the effect of its absence."""


def find(path: str) -> Any:
    """The object at "module:name"; None if this torch lacks it."""
    module, _, name = path.partition(":")
    with contextlib.suppress(Exception):
        return getattr(importlib.import_module(module), name)
    return None


def missing() -> dict[str, str]:
    return {path.replace(":", "."): text for path, text in WITHOUT.items() if find(path) is None}


def raw_stream() -> Callable[[int], int]:
    """A function from a device to torch's current stream there, as the driver's number."""
    return find(_STREAM) or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))


def current_device() -> Callable[[], int]:
    return find(_DEVICE) or torch.cuda.current_device


def tensor_guards() -> Any:
    """The guard with which torch.compile checks the form of its inputs; None if this torch lacks it."""
    return find(_GUARDS)


def allocator() -> tuple[Callable[..., torch.Tensor], Callable[[], int]] | None:
    """The allocator of torch.compile's code, which bypasses every mode, and the number of active modes."""
    allocate, modes = find(_EMPTY), find(_MODES)
    return None if allocate is None or modes is None else (allocate, modes)
