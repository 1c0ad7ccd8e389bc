"""From the file next to the caller to its kernels; images are cached by a hash of their sources and options."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .compiling import FLAGS, CompileError, Source, compiled, digest, texts
from .launching import Kernel

_MISSING = (
    "{file} needs cuda-core and cuda-bindings, which this Python lacks ({problem}): "
    "`pip install 'kernbench[cuda13]'`, or cuda12 for a CUDA 12 torch"
)


class Library:
    """A compiled file. `get` finds every kernel; those that are not templates are also attributes."""

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self._source = source
        self._kernels: dict[str, Kernel] = {}
        self._image = Image.of(source, tuple(names))

    def get(self, name: str) -> Kernel:
        """A kernel by its C++ name, such as `scale` or `rms_norm<float, 4>`."""
        if name not in self._kernels:
            kernel = self._image.kernel(name) or Image.of(self._source, (name,)).kernel(name)
            if kernel is None:
                raise CompileError(f"{self._source.file} has no __global__ function {name}", self._source.user_path)
            self._kernels[name] = Kernel(kernel, name)
        return self._kernels[name]

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            kernel = self.get(name)
        except CompileError as problem:
            raise AttributeError(str(problem)) from None
        self.__dict__[name] = kernel  # the next access costs nothing
        return kernel


class Image:
    """Machine code on the device, and the lowered names of its C++ names."""

    def __init__(self, code: bytes, lowered: dict[str, str]) -> None:
        from cuda.core import ObjectCode

        self._lowered = lowered
        self._object = ObjectCode.from_cubin(code)

    @classmethod
    def of(cls, source: Source, names: tuple[str, ...]) -> Image:
        stem = os.path.join(source.cache, f"{os.path.splitext(source.file)[0]}-{digest(source, names)}")
        with contextlib.suppress(OSError):
            os.utime(stem + ".json", ns=(time.time_ns(), os.stat(stem + ".json").st_mtime_ns))  # in use: do not prune
        with (
            contextlib.suppress(OSError, ValueError),
            open(stem + ".json") as said,
            open(stem + ".cubin", "rb") as code,
        ):
            return cls(code.read(), json.load(said))
        image, names_in_it = compiled(source, names)
        os.makedirs(source.cache, exist_ok=True)
        for suffix, content in ((".json", json.dumps(names_in_it).encode()), (".cubin", image)):
            handle, partial = tempfile.mkstemp(dir=source.cache, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(partial, stem + suffix)  # readers see the whole file or none
        return cls(image, names_in_it)

    def kernel(self, name: str) -> Any:
        """cuda.core's kernel, or None if the image has none of this name."""
        try:
            return self._object.get_kernel(self._lowered.get(name, name))
        except Exception:  # cuda.core has no public error class for a missing name
            return None


def load(
    name: str,
    defines: Mapping[str, Any] | None = None,
    includes: Sequence[str] = (),
    names: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Library:
    """Compiles (or finds) a CUDA file next to the calling file."""
    scope = sys._getframe(1).f_globals
    folder = os.path.dirname(os.path.abspath(scope.get("__file__") or os.path.join(os.getcwd(), "-")))
    path, user_path = os.path.join(folder, name), os.path.join(scope.get("__kernbench_folder__") or folder, name)
    if not os.path.isfile(path):
        raise CompileError(f"no file {name} next to the file that loads it", user_path)
    _require(user_path)
    folders = (os.path.dirname(path), *(os.path.join(folder, place) for place in includes))
    macros = [f"-D{key}={int(value) if isinstance(value, bool) else value}" for key, value in (defines or {}).items()]
    cache = scope.get("__kernbench_build__") or _user_cache()
    source = Source(path, user_path, (*FLAGS, f"-arch={_architecture()}", *macros, *options), folders, cache)
    if "__kernbench_reads__" in scope:
        scope["__kernbench_reads__"](texts(source))
    return Library(source, names)


def _require(user_path: str) -> None:
    file = os.path.basename(user_path)
    if not torch.cuda.is_available():
        raise CompileError(f"{file} needs an NVIDIA GPU, but torch finds none", user_path)
    try:
        import cuda.bindings.nvrtc
        import cuda.core  # noqa: F401
    except ImportError as problem:
        raise CompileError(_MISSING.format(file=file, problem=problem), user_path) from None


def _user_cache() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "kernbench", "cuda")


def _architecture() -> str:
    """The current device's, including architecture-specific features: the image runs nowhere else."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"
