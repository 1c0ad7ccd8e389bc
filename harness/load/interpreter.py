"""Triton without a GPU: works around what its interpreter does not support, or reports it; and the words in which other
languages miss the GPU."""

from __future__ import annotations

import inspect
import re
from typing import Any

from harness.load.exception_text import attribute, written
from harness.private import triton_private
from harness.shared.codes import Reason

_launches = 0
MISSING: dict[str, Reason] = {"inline_asm": "no_inline_asm", "extern_elementwise": "no_libdevice"}
"""By the word in Triton's message."""
NO_GPU = re.compile(
    r"needs an NVIDIA GPU|0 active drivers|no NVIDIA driver|No CUDA GPUs|not compiled with CUDA|requires CUDA support"
    r"|dummy base class|libcuda\.so|driver library cannot be found|driver version is insufficient"
    r"|no CUDA-capable device|(?:CUDA_ERROR_NO_|cudaErrorNo)DEVICE|CUDA compute_cap",
    re.IGNORECASE,
)
"""What kernbench, Triton, torch, CUDA's libraries, numba, CuPy and tvm_ffi say."""


def install() -> None:
    """Autotuning needs a GPU to time, so interpreted kernels use the first configuration.

    Without a GPU, libdevice functions are empty and return None; make them raise instead. Loops up to a value that is
    known at run time, which fail with numpy 2.4, work.
    """
    try:
        import triton
    except ImportError:
        return
    original = triton.autotune

    def autotune(configs: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("prune_configs_by", None)
        return original(list(configs)[:1], *args, **kwargs)

    triton.autotune = autotune
    triton_private.repair_interpreter(_count)
    libdevice = triton_private.libdevice()
    if libdevice is None:
        return
    for name, value in vars(libdevice).items():
        if inspect.isfunction(value) and value.__module__ == libdevice.__name__:
            setattr(libdevice, name, _no_libdevice)


def _count() -> None:
    global _launches
    _launches += 1


def launches() -> int:
    """How many kernels the interpreter has run: those of a task for the CPU are not worth timing."""
    return _launches


def _no_libdevice(*args: Any, **kwargs: Any) -> None:
    raise NotImplementedError("extern_elementwise not supported in interpreter mode")


def lacks(problem: BaseException) -> Reason | None:
    """Why a source could not run without a GPU, if that is the cause."""
    cause = attribute(problem, "__cause__", BaseException)
    text = f"{written(problem)} {written(cause)}"
    for word, reason in MISSING.items():
        if word in text and "interpreter" in text:
            return reason
    return "needs_gpu" if NO_GPU.search(text) else None
