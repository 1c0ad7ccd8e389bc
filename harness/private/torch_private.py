"""The private names of torch that the harness uses, and what it does if one is missing."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from harness.private.lookup import PrivateNames

DYNAMO = "torch._dynamo"
COMPILE_IMPORTS = (
    "sympy", "networkx", "torch.fx.experimental.symbolic_shapes", "torch.distributed.tensor", "torch.distributed.fsdp",
    DYNAMO, "torch._inductor.codecache", "torch._inductor.decomposition", "torch._inductor.lowering",
    "torch._inductor.compile_fx",
)  # fmt: skip
"""Most of the slow first start of a compile baseline (7 s on an H200's host), in pieces: a run that starts meanwhile
waits for only one piece. If a torch version lacks a module or has another order, the next import covers it."""

_MODE = "torch.utils._python_dispatch:TorchDispatchMode"
_NO_PROFILER = "if CUPTI is unavailable, calls are timed with event pairs"
_NO_CUPTI = "activity records come from torch's profiler, which is slower"
_NO_CUSTOM = "outputs allocated by a custom operator are checked without guard regions"
_KEPT = "operators registered by a source stay in torch's registry until the worker ends"

NAMES = PrivateNames(
    {
        _MODE: "outputs of checked calls are checked without guard regions",
        f"{_MODE}._should_skip_dynamo": "torch decides whether the first checked call imports Dynamo",
        f"{_MODE}.ignore_compile_internals": "torch decides whether a compiled solution is checked in compiled form",
        "torch._C:DispatchKey": _NO_CUSTOM,
        "torch._C:DispatchKeySet": _NO_CUSTOM,
        "torch._C:_dispatch_has_computed_kernel_for_dispatch_key": _NO_CUSTOM,
        "torch._ops:OpOverload.redispatch": _NO_CUSTOM,
        "torch._C:_disabled_torch_function_impl": "precompiling handles its fake tensors more slowly",
        "torch._library.custom_ops:OPDEF_TO_LIB": _KEPT,
        "torch.library:Library._destroy": _KEPT,
        "torch._C._autograd:_prepare_profiler": _NO_PROFILER,
        "torch._C._autograd:_enable_profiler": _NO_PROFILER,
        "torch._C._autograd:_disable_profiler": _NO_PROFILER,
        "torch._C._autograd:DeviceType": "records of torch's profiler are read more slowly",
        "torch._C._profiler:ProfilerActivity": _NO_PROFILER,
        "torch._C._profiler:ProfilerConfig": _NO_PROFILER,
        "torch._C._profiler:ProfilerState": _NO_PROFILER,
        "torch._C._profiler:_ExperimentalConfig": _NO_PROFILER,
        "torch.autograd.profiler:_prepare_profiler": _NO_CUPTI,
        "torch.autograd.profiler:_enable_profiler": _NO_CUPTI,
        "torch.cuda:_sleep": "event pairs include the launch, and ncu cannot separate the kernels of two sides",
        **{
            name: "the first torch.compile baseline starts more slowly"
            for name in COMPILE_IMPORTS
            if name.startswith("torch._")
        },
    }
)


class _BlindMode:
    """A dispatch mode that sees nothing."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
else:
    DispatchMode = NAMES.find(_MODE) or _BlindMode


class CheckingMode(DispatchMode):
    """A mode that observes one call; a torch version that lacks one of these hooks never calls it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Checks a compiled solution as it will be timed: compiled."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keeping Dynamo out of the handler would import Dynamo, which takes seconds; see `OutOfDynamo`."""
        return False


class OutOfDynamo:
    """For a `CheckingMode` once torch.compile is in use: keeps Dynamo from tracing its handler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True


def dynamo_is_loaded() -> bool:
    return sys.modules.get(DYNAMO) is not None


def own_kernel(overload: Any, on_gpu: bool) -> Callable[..., Any] | None:
    """A function that runs the kernel that a custom operator registered for this device, bypassing every mode; None if
    there is none or torch does not say."""
    keys, key_set = NAMES.find("torch._C:DispatchKey"), NAMES.find("torch._C:DispatchKeySet")
    has_kernel = NAMES.find("torch._C:_dispatch_has_computed_kernel_for_dispatch_key")
    redispatch = NAMES.find("torch._ops:OpOverload.redispatch")
    if keys is None or key_set is None or has_kernel is None or redispatch is None:
        return None
    key = keys.CUDA if on_gpu else keys.CPU
    return functools.partial(overload.redispatch, key_set(key)) if has_kernel(overload.name(), key.name) else None


def no_torch_function() -> Any:
    """The `__torch_function__` for a tensor class that torch treats as plain tensors."""
    return NAMES.find("torch._C:_disabled_torch_function_impl") or classmethod(_no_torch_function)


def _no_torch_function(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    with torch._C.DisableTorchFunctionSubclass():  # documented, under "Extending PyTorch"
        return func(*args, **(kwargs or {}))


def drop_operators(suffix: str, libraries: list[Any]) -> None:
    """Removes operators from torch's registry, as far as torch allows: those of the libraries, and custom operators
    whose namespace has this suffix."""
    registry: dict[str, Any] = NAMES.find("torch._library.custom_ops:OPDEF_TO_LIB") or {}
    mine = [name for name in registry if name.partition("::")[0].endswith(suffix)]
    for library in [*libraries, *(registry.pop(name) for name in mine)]:
        destroy = getattr(library, "_destroy", None)
        if destroy is not None:
            destroy()


class Profiler(NamedTuple):
    """The parts of torch's profiler."""

    prepare: Callable[..., None]
    enable: Callable[..., None]
    disable: Callable[[], Any]
    config: Any
    activities: Any
    """Device types by name."""


def profiler() -> Profiler:
    """Raises ImportError if this torch has a different profiler."""
    steps = ("prepare", "enable", "disable")
    prepare, enable, disable = (NAMES.find(f"torch._C._autograd:_{step}_profiler") for step in steps)
    parts = ("ProfilerConfig", "ProfilerState", "_ExperimentalConfig", "ProfilerActivity")
    config, state, experimental, activities = (NAMES.find(f"torch._C._profiler:{part}") for part in parts)
    if None not in (prepare, enable, disable, activities):
        with contextlib.suppress(AttributeError, TypeError):  # missing, or with another signature
            made = config(state.KINETO, False, False, False, False, False, experimental())
            return Profiler(prepare, enable, disable, made, activities)
    raise ImportError(f"torch {torch.__version__} has a different profiler")


def is_cuda_type() -> Callable[[Any], bool]:
    """A function that tests whether a DeviceType of the profiler's events is CUDA."""
    kinds = NAMES.find("torch._C._autograd:DeviceType")
    if kinds is None:
        return lambda kind: str(kind).endswith("CUDA")
    return functools.partial(operator.eq, kinds.CUDA)


def watch_profilers(noticed: Callable[[str], None]) -> bool:
    """Calls `noticed` whenever torch's profiler starts; returns False if this torch does not allow it."""
    found = {name: NAMES.find(f"torch.autograd.profiler:{name}") for name in ("_prepare_profiler", "_enable_profiler")}
    if None in found.values():
        return False
    for name, function in found.items():
        setattr(torch.autograd.profiler, name, _watched(name, function, noticed))
    return True


def _watched(name: str, function: Callable[..., Any], noticed: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def entered(*words: Any, **named: Any) -> Any:
        noticed(name)
        return function(*words, **named)

    return entered


def spin() -> Callable[[int], None]:
    """A function that keeps the GPU busy for a number of cycles, with a kernel name that no source uses; does nothing
    if torch lacks it."""
    return NAMES.find("torch.cuda:_sleep") or (lambda cycles: None)
