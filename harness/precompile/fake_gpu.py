"""A fake GPU: tensors without memory, a torch.cuda with canned answers, and a Triton driver without a device.

To Python, a `FakeCudaTensor` has shape, strides, dtype, offset and a device of type cuda. Underneath it is on torch's
`meta` device, so operations cost almost nothing and never reach CUDA. Operations that need values (`item`, a copy to
the host) raise, as on every meta tensor.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.private import torch_private, triton_private

ADDRESS = 1 << 20
"""Address of every allocation; as aligned as torch's own."""
META = torch.device("meta")
_Generator = torch.Generator


class FakeCudaTensor(torch.Tensor):
    """A tensor that claims to be on the GPU."""

    place = torch.device("cuda", 0)
    __torch_function__ = torch_private.no_torch_function()

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    def get_device(self) -> int:
        return self.place.index

    def data_ptr(self) -> int:
        return ADDRESS + int(self.storage_offset()) * self.element_size()


class FakeTensors(TorchFunctionMode):
    """While active, everything created on the GPU, moved to it or computed on it is a FakeCudaTensor."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:  # only a name; needs no GPU
            return func(*args, **(kwargs or {}))
        args, kwargs = _each(_beneath, (args, kwargs or {}))
        if func is torch.Tensor.cuda:
            func, args, kwargs = torch.Tensor.to, (args[0], META), {}
        elif isinstance(kwargs.get("device"), int):
            kwargs["device"] = META
        kwargs.pop("generator", None)  # nothing is drawn
        return _each(_above, func(*args, **kwargs))


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """The same structure with every value changed; torch's tree_map takes five times as long."""
    if isinstance(value, (tuple, list)):
        return type(value)([_each(change, part) for part in value])
    if isinstance(value, dict):
        return {name: _each(change, part) for name, part in value.items()}
    return change(value)


def _beneath(value: Any) -> Any:
    """What torch works with: plain meta tensors instead of fakes, and the meta device instead of the GPU."""
    if isinstance(value, FakeCudaTensor):
        return value.as_subclass(torch.Tensor)
    name = value.type if isinstance(value, torch.device) else value.partition(":")[0] if isinstance(value, str) else ""
    return META if name == "cuda" else value


def _above(value: Any) -> Any:
    return value.as_subclass(FakeCudaTensor) if type(value) is torch.Tensor and value.is_meta else value


class Generator(_Generator):
    """A CPU generator in place of any: nothing is drawn here."""

    def __new__(cls, device: Any = None) -> Any:
        return _Generator("cpu")


class Driver:
    """What Triton needs to compile; what it needs to launch is missing."""

    def __init__(self, facts: dict[str, Any], index: int) -> None:
        self._target, self._index = triton_private.gpu_target(*facts["target"]), index
        self.utils = types.SimpleNamespace(get_device_properties=lambda device: facts["driver_properties"])

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return self._index

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return FakeCudaTensor.place


def install(facts: dict[str, Any]) -> None:
    """Makes this process see the GPU that `facts` describes (see server.py)."""
    FakeCudaTensor.place = torch.device(facts["device"])
    index, about = FakeCudaTensor.place.index or 0, types.SimpleNamespace(**facts["device_properties"])
    triton_private.use_driver(Driver(facts, index))
    torch.Generator = Generator  # type: ignore[misc]
    silent = dict.fromkeys(("synchronize", "wait_stream"), _nothing())
    stream = types.SimpleNamespace(cuda_stream=0, device=FakeCudaTensor.place, **silent)
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: index + 1,
        "current_device": lambda: index,
        "get_device_properties": lambda device=None: about,
        "get_device_capability": lambda device=None: (about.major, about.minor),
        "get_device_name": lambda device=None: about.name,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "is_current_stream_capturing": lambda: False,
        "device": contextlib.contextmanager(_nowhere),
        "stream": contextlib.contextmanager(_nowhere),
        "set_device": _nothing(),
        "synchronize": _nothing(),
        "manual_seed": _nothing(),
        "manual_seed_all": _nothing(),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


def _nothing() -> Callable[..., None]:
    """A new function each time: Dynamo refuses one object under two of torch's names."""
    return lambda *_args, **_kwargs: None


def _nowhere(*_args: Any, **_kwargs: Any) -> Any:
    yield
