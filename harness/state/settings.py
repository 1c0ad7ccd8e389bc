"""Settings of the process that a source may change: those that are put back, and those that cannot be.

`RESTORED` is closed: each entry has a value that can be read and set again without side effects. A worker in which one
of `KEPT` has changed is replaced, because code that saw the change may have acted on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from harness.load import native_stack
from harness.load.failure import SIDE_PREFIX
from harness.private import process_state

_libc = ctypes.CDLL(None)
ACTION_WORDS, INSTRUCTION_BYTES = 32, 16
"""Room for C's `struct sigaction`, which begins with the handler, and the part of a function that is compared."""
_PLACES = {os.path.abspath(place) for place in (*sys.path, sys.prefix, sys.base_prefix)}
# Where packages are imported from, as it was before any source could add to it:
INSTALLED = (*(os.path.join(place, "") for place in _PLACES | set(map(os.path.realpath, _PLACES))), "/usr/", "/lib")
of_the_task: list[str] = []
"""Folders whose libraries are the source's, even if Python imports from there: its own, its snapshot, its builds."""
_getcwd, _chdir, _umask = os.getcwd, os.chdir, os.umask
"""Bound before any source could replace them."""
_FIRST_RECURSION_LIMIT = sys.getrecursionlimit()


class Setting(NamedTuple):
    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object]
    by_packages: bool = False
    """Packages change it when they are imported, so a change next to a new import is taken for theirs."""


def _folder() -> str | None:
    try:
        return _getcwd()
    except OSError:  # it was removed
        return None


def _flushes_denormals() -> bool:
    """A library linked with -ffast-math switches it on when it is loaded."""
    return bool(torch.tensor(1e-40).mul(1.0).eq(0.0))


def _mask() -> int:
    mask = _umask(0o077)
    _umask(mask)
    return mask


def _recursion_limit() -> int:
    """torch.compile raises it."""
    return min(sys.getrecursionlimit(), _FIRST_RECURSION_LIMIT)


def _hooks() -> tuple[Any, ...]:
    return tuple(getattr(sys, name) for name in HOOKS)


def _set_hooks(values: tuple[Any, ...]) -> None:
    for name, value in zip(HOOKS, values, strict=True):
        setattr(sys, name, value)


def _set_list(target: list[Any], values: tuple[Any, ...]) -> None:
    target[:] = values


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_THE_SOURCES}


def _set_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys() - NOT_THE_SOURCES:
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr


def _set_streams(values: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = values


NOT_THE_SOURCES = frozenset(
    ("OMP_NUM_THREADS", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "KMP_DUPLICATE_LIB_OK")
)
"""Variables that kernbench, torch.compile and OpenMP set themselves."""
SET_BY_COMPILERS = frozenset(
    ("TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH", "CUDA_HOME", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR")
)
"""Variables that Inductor sets once in a process; without them it would go on with another assembler."""
FOR_INPUTS = frozenset(("the default dtype", "the default device"))
"""Settings that decide what `make_inputs` and `setup` make where they do not ask for anything."""
HOOKS = ("excepthook", "unraisablehook", "displayhook", "breakpointhook")
RESTORED = (
    Setting("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("the default device", process_state.default_device, process_state.set_default_device),
    Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("anomaly mode", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    Setting(
        "deterministic algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    Setting("the matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Setting("torch.backends", process_state.backend_flags, process_state.set_backend_flags),
    Setting("flush-denormal", _flushes_denormals, torch.set_flush_denormal),
    Setting("Dynamo's and Inductor's settings", process_state.compiler_settings, process_state.set_compiler_settings),
    Setting("the working directory", _folder, lambda value: _chdir(value or os.sep)),
    Setting("the umask", _mask, _umask),
    Setting(
        "garbage collection", lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()), lambda value: _gc(*value)
    ),
    Setting("the trace function", lambda: (sys.gettrace(), threading.gettrace()), lambda value: _trace(*value)),
    Setting("the profile function", lambda: (sys.getprofile(), threading.getprofile()), lambda value: _profile(*value)),
    Setting("a hook in sys", _hooks, _set_hooks, by_packages=True),
    Setting("the standard streams", _streams, _set_streams),
    Setting("warning filters", lambda: tuple(warnings.filters), lambda value: _set_filters(value), by_packages=True),
    Setting("sys.path", lambda: tuple(sys.path), lambda value: _set_list(sys.path, value), by_packages=True),
    Setting("the environment", _environment, _set_environment, by_packages=True),
    Setting("the recursion limit", _recursion_limit, sys.setrecursionlimit, by_packages=True),
    Setting("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
)


def _gc(enabled: bool, threshold: tuple[int, int, int], debug: int) -> None:
    gc.set_threshold(*threshold)
    gc.set_debug(debug)
    (gc.enable if enabled else gc.disable)()


def _trace(own: Any, others: Any) -> None:
    sys.settrace(own)
    threading.settrace(others)


def _profile(own: Any, others: Any) -> None:
    sys.setprofile(own)
    threading.setprofile(others)


def _set_filters(values: tuple[Any, ...]) -> None:
    warnings.filters[:] = values  # type: ignore[index]
    getattr(warnings, "_filters_mutated", lambda: None)()  # not in every Python


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(resource.getrlimit(getattr(resource, name)) for name in LIMITS)


def _handlers() -> tuple[Any, ...]:
    """Python's, and those that C code sets behind its back: one for a fault could compute a result when it is read."""
    return *(signal.getsignal(number) for number in range(1, signal.NSIG)), *map(_native_handler, native_stack.FAULTS)


def _native_handler(number: int) -> int:
    """Its address; 0 without one, and for those of kernbench and of installed libraries, such as a compiler."""
    action, about = (ctypes.c_size_t * ACTION_WORDS)(), (ctypes.c_void_p * 4)()
    _libc.sigaction(number, None, action)
    if action[0] in (signal.SIG_DFL, signal.SIG_IGN):
        return 0
    name = about[0] if _libc.dladdr(ctypes.c_void_p(action[0]), about) else None
    image = os.fsdecode(ctypes.string_at(name)) if name else ""
    is_installed = image.startswith(INSTALLED) and not image.startswith(tuple(of_the_task))
    return 0 if is_installed or image in native_stack.images else action[0]


def _clock() -> bytes:
    """The first instructions of the function that every clock in the process calls."""
    return ctypes.string_at(ctypes.cast(_libc.clock_gettime, ctypes.c_void_p).value or 0, INSTRUCTION_BYTES)


def _timers() -> tuple[bool, ...]:
    return tuple(
        signal.getitimer(which)[0] > 0 for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    )


PIPES: list[int] = []
"""The descriptors of the pipes to the workbench, once they are known."""
SENDERS: list[tuple[Any, Any]] = []
"""The channel to the workbench, once it is known, and its lock: a source that puts its own there could change a line
while it is being sent."""


def _pipe() -> tuple[Any, ...]:
    return *_descriptors(PIPES), *(sender._lock is lock for sender, lock in SENDERS)


def _descriptors(numbers: Sequence[int]) -> tuple[Any, ...]:
    found = []
    for number in numbers:
        try:
            about = os.fstat(number)
        except OSError:
            return ()
        found.append((about.st_dev, about.st_ino))
    return tuple(found)


def _may_matter(finder: Any) -> bool:
    """Packages add finders of their own; only one that was there before, or that a source defines, counts."""
    kind = finder if isinstance(finder, type) else type(finder)
    return finder in _FINDERS or str(kind.__module__).startswith(SIDE_PREFIX)


_FINDERS = tuple(sys.meta_path)
LIMITS = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
KEPT: dict[str, Callable[[], Any]] = {
    "a resource limit": _limits,
    "the nice value": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "the CPU affinity": lambda: os.sched_getaffinity(0),
    "a signal handler": _handlers,
    "an interval timer": _timers,
    "file descriptor 0, 1 or 2": lambda: _descriptors(range(3)),
    "the pipe to the workbench": _pipe,
    "the C library's clock": _clock,
    "sys.meta_path": lambda: tuple(id(finder) for finder in sys.meta_path if _may_matter(finder)),
    "a torch function or dispatch mode": process_state.mode_depths,
    "an aten operator": process_state.aten_overrides,
    "the CUDA device or stream": process_state.cuda_current,
}


def changed(before: dict[str, Any]) -> list[str]:
    """Names in `KEPT` whose value has changed."""
    return [name for name, read in KEPT.items() if before[name] is not None and _value(read) != before[name]]


def kept() -> dict[str, Any]:
    return {name: _value(read) for name, read in KEPT.items()}


def _value(read: Callable[[], Any]) -> Any:
    with contextlib.suppress(Exception):
        return read()
    return None
