"""The private names of triton that the harness uses, and what it does if one is missing."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from harness.private.lookup import PrivateNames

GLUON = "triton.experimental.gluon.nvidia.hopper"
_NOT_AHEAD = "kernels are not precompiled"
_AHEAD = (
    "triton.runtime._async_compile:active_mode",
    "triton.runtime.jit:JITFunction.run",
    "triton.runtime.autotuner:Autotuner.run",
    "triton.compiler.compiler:make_backend",
    "triton.backends.compiler:GPUTarget",
    "triton.runtime.driver:driver.set_active",
)
_SLOWER_AHEAD = "precompiling kernels is slower"
_NO_CODE = "diffs show no machine code of Triton kernels"

NAMES = PrivateNames(
    {
        **dict.fromkeys(_AHEAD, _NOT_AHEAD),
        "triton.runtime.driver:driver": _NOT_AHEAD,
        "triton.runtime.cache:triton_key": _SLOWER_AHEAD,
        GLUON: _SLOWER_AHEAD,
        "triton.knobs:cache": "Triton kernels are rebuilt after the first torch.compile",
        "triton.compiler.compiler:CompiledKernel._init_handles": "profiles do not show what Triton's compiler reports",
        "triton.runtime.jit:JITFunction": _NO_CODE,
        "triton.runtime.jit:KernelInterface": _NO_CODE,
        "triton.runtime.autotuner:Autotuner": _NO_CODE,
        "triton.runtime.interpreter:_patch_lang_tensor": "an interpreted kernel's loops may need numpy below 2.4",
        "triton.runtime.interpreter:GridExecutor": "kernels that are interpreted for a CPU task are timed",
        "triton.language.extra.libdevice": "libdevice returns None in an interpreted kernel instead of raising",
    }
)


def compiles_ahead() -> bool:
    """Whether this Triton has everything needed to compile without launching."""
    return all(NAMES.find(path) is not None for path in (*_AHEAD, "triton.runtime.driver:driver"))


def preload() -> None:
    """Loads what every precompiling process needs; Triton imports gluon and hashes its own files on first use."""
    compiles_ahead()
    NAMES.find(GLUON)
    key = NAMES.find("triton.runtime.cache:triton_key")
    if key is not None:
        with contextlib.suppress(Exception):
            key()


def target() -> Any:
    """The active driver's compilation target."""
    return NAMES.find("triton.runtime.driver:driver").active.get_current_target()


def gpu_target(*facts: Any) -> Any:
    return NAMES.find("triton.backends.compiler:GPUTarget")(*facts)


def backend_key() -> str:
    """The compiler's part of every kernel's cache key: its version and that of ptxas."""
    return str(_backend().hash())


def pin_backend_key(key: str) -> None:
    """From now on compiled kernels get the same cache keys as in another process."""
    type(_backend()).hash = lambda self: key


def _backend() -> Any:
    return NAMES.find("triton.compiler.compiler:make_backend")(target())


def driver_properties(device: int) -> dict[str, Any]:
    found: dict[str, Any] = NAMES.find("triton.runtime.driver:driver").active.utils.get_device_properties(device)
    return found


def use_driver(driver: Any) -> None:
    NAMES.find("triton.runtime.driver:driver").set_active(driver)


def collect_compilations(collected: Any) -> None:
    """From now on no kernel is launched; what a launch would compile goes to `collected.submit`, in place of Triton's
    AsyncCompileMode."""
    jit = importlib.import_module("triton.runtime.jit")
    autotuner = importlib.import_module("triton.runtime.autotuner")
    run = jit.JITFunction.run
    NAMES.find("triton.runtime._async_compile:active_mode").set(collected)
    jit.JITFunction.run = lambda self, *args, **options: run(self, *args, **{**options, "warmup": True})
    autotuner.Autotuner.run = _every_config


def _every_config(tuner: Any, *args: Any, **options: Any) -> None:
    """Compiles every configuration that an autotuner would time."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    for config in tuner.prune_configs(options):
        chosen = {**options, **config.all_kwargs()}
        with contextlib.suppress(Exception):
            if config.pre_hook is not None:
                config.pre_hook({**tuner.nargs, **chosen})
            tuner.fn.run(*args, **chosen)


def cache_folder() -> str | None:
    """Triton's cache folder for compiled kernels."""
    found = getattr(NAMES.find("triton.knobs:cache"), "dir", None)
    return found if isinstance(found, str) else None


def libdevice() -> ModuleType | None:
    found: ModuleType | None = NAMES.find("triton.language.extra.libdevice")
    return found


def repair_interpreter(on_launch: Callable[[], None]) -> None:
    """Lets a loop's bound be a tensor of one element, from which numpy 2.4 makes no int, and reports every launch."""
    patch_tensor = NAMES.find("triton.runtime.interpreter:_patch_lang_tensor")
    if patch_tensor is not None:

        def patched(tensor: Any, *scope: Any) -> None:
            patch_tensor(tensor, *scope)
            tensor.__index__ = lambda self: int(self.handle.data.item())

        interpreter: Any = sys.modules["triton.runtime.interpreter"]
        interpreter._patch_lang_tensor = patched
    executor = NAMES.find("triton.runtime.interpreter:GridExecutor")
    if executor is not None:
        call = executor.__call__

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            on_launch()
            return call(self, *args, **kwargs)

        executor.__call__ = counted


def watch_kernels() -> dict[str, dict[str, Any]]:
    """Compiler facts about every kernel loaded from now on, by name and hash."""
    seen: dict[str, dict[str, Any]] = {}
    load = NAMES.find("triton.compiler.compiler:CompiledKernel._init_handles")
    if load is None:
        return seen

    def note(kernel: Any) -> None:
        load(kernel)
        with contextlib.suppress(AttributeError):
            about = kernel.metadata
            seen[f"{about.name} {kernel.hash}"] = {
                "name": str(about.name),
                "registers": getattr(kernel, "n_regs", None),
                "spills": getattr(kernel, "n_spills", None),
                "shared_bytes": getattr(about, "shared", None),
                "warps": getattr(about, "num_warps", None),
                "stages": getattr(about, "num_stages", None),
            }

    importlib.import_module("triton.compiler.compiler").CompiledKernel._init_handles = note
    return seen


def compiled_kernels(values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """What was launched of every Triton function among these values; of an autotuner, only what it chose."""
    names = (
        "triton.runtime.jit:JITFunction",
        "triton.runtime.jit:KernelInterface",
        "triton.runtime.autotuner:Autotuner",
    )
    jit, interface, tuner = (NAMES.find(name) for name in names)
    if jit is None or interface is None:
        return
    seen: set[int] = set()
    for value in values:
        function, configs = value, None
        while isinstance(function, interface) and not isinstance(function, jit):  # an autotuner, or heuristics
            if tuner is not None and isinstance(function, tuner):
                configs = list(function.cache.values()) or function.configs[:1]
            function = getattr(function, "fn", None)
        if isinstance(function, jit) and id(function) not in seen:
            seen.add(id(function))
            with contextlib.suppress(AttributeError, KeyError, TypeError, IndexError):
                yield from _launched(function, configs)


def _launched(function: Any, configs: list[Any] | None) -> Iterator[dict[str, Any]]:
    kernels = [kernel for known in function.device_caches.values() for kernel in known[0].values()]
    for kernel in kernels:
        if getattr(kernel, "module", None) is None:
            continue
        about, constants = kernel.metadata, _constants(kernel)
        if configs is not None and not any(_is_of(config, about, constants) for config in configs):
            continue
        spills = getattr(kernel, "n_spills", None)
        types = sorted({str(kind)[1:] for kind in kernel.src.signature.values() if str(kind).startswith("*")})
        words = [*types, *(f"{name}={value}" for name, value in constants.items())]
        yield {
            "name": function.__name__,
            "entry": str(about.name),
            "variant": ", ".join([*words, f"{about.num_warps} warps", f"{about.num_stages} stages"]),
            "registers": getattr(kernel, "n_regs", None),
            "local_bytes": None if spills is None else 4 * spills,
            "shared_bytes": getattr(about, "shared", None),
            "ptx": str(kernel.asm.get("ptx", "")),
            "code": bytes(kernel.asm.get("cubin", b"")),
        }


def _constants(kernel: Any) -> dict[str, Any]:
    """By name: constexprs, and arguments that Triton has specialized."""
    names = kernel.src.fn.arg_names
    return {names[place[0]]: value for place, value in kernel.src.constants.items() if len(place) == 1}


def _is_of(config: Any, about: Any, constants: dict[str, Any]) -> bool:
    same = all(constants.get(name) == value for name, value in config.kwargs.items())
    return same and (config.num_warps, config.num_stages) == (about.num_warps, about.num_stages)
