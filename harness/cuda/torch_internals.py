"""The private names of torch that launches are faster with; where a version lacks one, torch's public way.

Looked up when a launcher or a plan is made, never in a launch.
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
_SLOWER = "a launch by harness.cuda takes the host longer"
WITHOUT = dict.fromkeys((_STREAM, _DEVICE, _GUARDS, _EMPTY, _MODES), _SLOWER)
"""Every name, with what is different where it is absent."""


def find(path: str) -> Any:
    """What "module:name" names; None where this torch lacks it."""
    module, _, name = path.partition(":")
    with contextlib.suppress(Exception):
        return getattr(importlib.import_module(module), name)
    return None


def missing() -> dict[str, str]:
    return {path.replace(":", "."): text for path, text in WITHOUT.items() if find(path) is None}


def raw_stream() -> Callable[[int], int]:
    """A function of a device: torch's current stream there, as the driver's number."""
    return find(_STREAM) or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))


def current_device() -> Callable[[], int]:
    return find(_DEVICE) or torch.cuda.current_device


def tensor_guards() -> Any:
    """What torch.compile compares the form of its inputs with; None in a torch that has it no more."""
    return find(_GUARDS)


def allocator() -> tuple[Callable[..., torch.Tensor], Callable[[], int]] | None:
    """What torch.compile's code allocates with, past every mode, and how many modes are looking on."""
    allocate, modes = find(_EMPTY), find(_MODES)
    return None if allocate is None or modes is None else (allocate, modes)
