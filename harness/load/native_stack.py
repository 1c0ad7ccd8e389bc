"""Has a crash or a hang in host C++ name its line: without this, the log ends at the Python line that called it.

The handler (native_stack.cpp) is compiled once per user. It prints offsets into the images that host.load has made,
which have line numbers; the workbench looks them up after the process is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import signal
from collections.abc import Iterable
from typing import Any

from harness import host

SUFFIXES = (".cpp", ".cc", ".cxx", ".c")
_libc = ctypes.CDLL(None)
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
images: list[str] = []
"""The file that the handler is in, once it is installed."""


def install(paths: Iterable[str], build: str) -> None:
    """Before a side compiles these files into its folder of builds; without a compiler there is nothing to install."""
    if not build or not any(path.endswith(SUFFIXES) for path in paths):
        return
    handler = _handler()
    if handler is not None:
        handler.install(build.encode())
        images[:] = [handler._name]


def come_first() -> None:
    """Puts Python's handler and this one back: a library may have installed its own when it was loaded, and tvm_ffi's
    names no line of Python."""
    faulthandler.disable()
    for number in FAULTS:  # else the two would hand a fault to each other
        _libc.signal(number, None)
    faulthandler.enable(2)
    if images:
        _handler().put_back()


@functools.cache
def _handler() -> Any:
    """Looked for once: where it cannot be compiled, no load should try again."""
    with contextlib.suppress(host.CompileError, OSError):
        return host.load("native_stack.cpp")._library
    return None
