"""What torch keeps for the whole process, read and set through names that it does not all document."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from harness.cuda import torch_internals
from harness.private.lookup import PrivateNames

CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
MODULES = (
    "torch", "torch.nn.functional", "torch._C", "torch._C._nn", "torch.cuda", "torch.cuda.streams",
    "torch.cuda.graphs", "torch.linalg", "torch.special", "torch.fft", "torch.library", "torch._ops", "torch._tensor",
    "torch.autograd", "torch.autograd.function", "torch.utils._python_dispatch", "torch.overrides", "torch.testing",
)  # fmt: skip
"""The parts of torch that references call, and those that run them."""
CLASSES = (
    "torch:Tensor", "torch._C:TensorBase", "torch.nn:Module", "torch._C:_VariableFunctionsClass",
    "torch._ops:OpOverload", "torch._ops:OpOverloadPacket", "torch:Generator", "torch.autograd:Function",
)  # fmt: skip
_UNSEEN = "a source that changes it is not noticed"
_FUNCTIONS, _DISPATCHES = "torch._C:_len_torch_function_stack", "torch._C:_len_torch_dispatch_stack"
NAMES = PrivateNames(
    {
        **dict.fromkeys(CLASSES, _UNSEEN),
        "torch:_GLOBAL_DEVICE_CONTEXT": "a default device that a source sets is not restored",
        "torch.library:_impls": _UNSEEN,
        _FUNCTIONS: _UNSEEN,
        _DISPATCHES: _UNSEEN,
    }
)
FLAGS = (
    "cuda.matmul.allow_tf32", "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction", "cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic",
    "cudnn.allow_tf32", "mkldnn.enabled", "opt_einsum.enabled",
)  # fmt: skip
OWN_KEYS = frozenset(
    "CPU CUDA CompositeImplicitAutograd CompositeExplicitAutograd Autograd AutogradCPU AutogradCUDA".split()
)
"""Keys under which an operator of aten runs in a reference; torch itself registers decompositions under others."""


def classes() -> list[type]:
    return [kind for kind in map(NAMES.find, CLASSES) if kind is not None]


def default_device() -> Any:
    return torch.get_default_device() if _device_mode() is not None else None


def set_default_device(device: Any) -> None:
    torch.set_default_device(device)


def _device_mode() -> Any:
    return getattr(NAMES.find("torch:_GLOBAL_DEVICE_CONTEXT"), "device_context", None)


def backend_flags() -> tuple[Any, ...]:
    return tuple(_flag(path) for path in FLAGS)


def _flag(path: str) -> Any:
    owner: Any = torch.backends
    with contextlib.suppress(Exception):
        for name in path.split("."):
            owner = getattr(owner, name)
        return owner
    return None


def set_backend_flags(values: tuple[Any, ...]) -> None:
    for path, value in zip(FLAGS, values, strict=True):
        if value is None or _flag(path) == value:
            continue
        owner: Any = torch.backends
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)


def compiler_settings() -> dict[tuple[str, str], Any]:
    """What was set to another value than its default; a module that is not imported yet has nothing."""
    found: dict[tuple[str, str], Any] = {}
    for module in CONFIGS:
        entries = getattr(sys.modules.get(module), "_config", None)
        for name, entry in (entries or {}).items():
            value = entry.user_override
            value = value.get() if hasattr(value, "get") and hasattr(value, "reset") else value  # since torch 2.12
            if type(value) is not object and value != entry.default:
                found[module, name] = value
    return found


def set_compiler_settings(before: dict[tuple[str, str], Any]) -> None:
    for module, name in compiler_settings().keys() | before.keys():
        config = sys.modules[module]
        setattr(config, name, before.get((module, name), config._config[name].default))


def mode_depths() -> tuple[int, ...]:
    """How many modes are active; the default device is one of them."""
    functions, dispatches = NAMES.find(_FUNCTIONS), NAMES.find(_DISPATCHES)
    if functions is None or dispatches is None:
        return ()
    return functions() - (_device_mode() is not None), dispatches()


def aten_overrides() -> frozenset[str]:
    """Implementations of aten operators that Python code has registered."""
    known = NAMES.find("torch.library:_impls") or ()
    return frozenset(name for name in known if name.startswith("aten/") and name.rpartition("/")[2] in OWN_KEYS)


def cuda_current() -> Any:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    device, stream = _current()
    return device(), stream(device())


@functools.cache
def _current() -> tuple[Callable[[], int], Callable[[int], int]]:
    """Looked up once: this is asked after every timed call, and torch's own functions take 9 us."""
    return torch_internals.current_device(), torch_internals.raw_stream()
