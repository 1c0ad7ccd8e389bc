"""From the file next to the caller to its kernels; images are cached by a hash of their sources and options."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .compiling import FLAGS, CompileError, Source, compiled, digest, texts
from .launching import Kernel

_MISSING = (
    "{file} needs cuda-core and cuda-bindings, which this Python lacks ({problem}): "
    "`pip install 'kernbench[cuda13]'`, or cuda12 for a CUDA 12 torch"
)


LOADED: weakref.WeakSet[Library] = weakref.WeakSet()


class Library:
    """A compiled file. `get` finds every kernel; those that are not templates are also attributes."""

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self._source = source
        self._kernels: dict[str, Kernel] = {}
        self._image = Image.of(source, tuple(names))
        self._images: dict[str, Image] = {}
        """By kernel."""
        LOADED.add(self)

    def get(self, name: str) -> Kernel:
        """A kernel by its C++ name, such as `scale` or `rms_norm<float, 4>`."""
        if name not in self._kernels:
            image, kernel = self._image, self._image.kernel(name)
            if kernel is None:
                image = Image.of(self._source, (name,))
                kernel = image.kernel(name)
            if kernel is None:
                raise CompileError(f"{self._source.file} has no __global__ function {name}", self._source.user_path)
            self._kernels[name], self._images[name] = Kernel(kernel, name), image
        return self._kernels[name]

    def is_below(self, folder: str) -> bool:
        return self._source.path.startswith(folder + os.sep)

    def compiled(self) -> Iterator[dict[str, Any]]:
        """What NVRTC made of each kernel that was asked for."""
        for name, kernel in self._kernels.items():
            image = self._images[name]
            facts = {"name": name, "entry": image.lowered(name), "variant": ""}
            yield {**facts, **kernel.figures(), "ptx": image.ptx, "code": image.code}

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

    def __init__(self, code: bytes, lowered: dict[str, str], ptx: str) -> None:
        from cuda.core import ObjectCode

        self._lowered, self.code, self.ptx = lowered, code, ptx
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
            open(stem + ".ptx", encoding="utf-8", errors="replace") as ptx,
        ):
            return cls(code.read(), json.load(said), ptx.read())
        image, names_in_it, text = compiled(source, names)
        os.makedirs(source.cache, exist_ok=True)
        for suffix, content in ((".json", json.dumps(names_in_it).encode()), (".cubin", image), (".ptx", text)):
            handle, partial = tempfile.mkstemp(dir=source.cache, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(partial, stem + suffix)  # readers see the whole file or none
        return cls(image, names_in_it, text.decode(errors="replace"))

    def lowered(self, name: str) -> str:
        """The name of a kernel in the machine code."""
        return self._lowered.get(name, name)

    def kernel(self, name: str) -> Any:
        """cuda.core's kernel, or None if the image has none of this name."""
        try:
            return self._object.get_kernel(self.lowered(name))
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
