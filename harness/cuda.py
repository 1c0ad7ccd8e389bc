"""`load("solution.cu")`: CUDA C++ through NVRTC, ready to be launched with tensors, well under a second after a save.

    from harness.cuda import load
    _cu = load("solution.cu", names=["rms_norm<__nv_bfloat16, 8>"])         # beside the file that calls load

    def rms_norm(x, weight, eps):
        out = torch.empty_like(x)
        kernel = _cu.get("rms_norm<__nv_bfloat16, 8>")                     # or _cu.name, where it is no template
        kernel[x.shape[0], 256](x, weight, out, x.shape[1], eps)           # [grid, block] or [grid, block, shared]
        return out

Launches go to torch's current stream. Tensors go as their data pointer and None as a null pointer; int and bool as an
integer and float as a float or double of the width that the kernel declares (write 2.0, not 2, where it declares a
float); numpy and ctypes scalars as they are. Number and widths of arguments are compared with the kernel's (where the
driver is too old to tell them: int as 64 bits, float as 32). `defines` is a dict, `includes` folders beside the file's
own and the toolkit's, `options` what NVRTC takes, such as "--use_fast_math". Kernels asked for by `names` are built by
`load`, others when `get` first asks. An unchanged file is compiled once. This file stands alone: it imports nothing
else of the harness and can be copied beside a kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

FLAGS = ("-std=c++17", "-lineinfo", "--no-source-include")
STATIC_SHARED = 48 * 1024
"""Dynamic shared memory up to here needs no permission."""
LEGACY_STREAM = 1
"""The default stream by its own handle: cuda.core takes null for none."""
_ERROR = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error.*?: (?P<what>.+)$", re.M)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)
_MISSING = (
    "{file} needs cuda-core and cuda-bindings, which this Python lacks ({problem}): "
    "`pip install 'kernbench[cuda13]'`, or cuda12 beside a torch for CUDA 12"
)


class CompileError(Exception):
    """NVRTC refused: one sentence, and the place in the user's file."""

    def __init__(self, message: str, file: str, line: int | None = None, output: str = "") -> None:
        super().__init__(message)
        self.file, self.line, self.output = file, line, output


@dataclass(frozen=True)
class _Source:
    """A file, how it is to be compiled, and where its images are kept."""

    path: str
    user_path: str
    options: tuple[str, ...]
    folders: tuple[str, ...]
    """Of the user's own, where headers are looked for first."""
    cache: str

    @property
    def file(self) -> str:
        return os.path.basename(self.user_path)

    def in_users_words(self, log: str) -> str:
        here, there = os.path.dirname(self.path), os.path.dirname(self.user_path)
        return log.rstrip("\0 \n").replace(here + os.sep, there + os.sep)


class Library:
    """A compiled file: kernels that are no templates are attributes, all are found by `get`."""

    def __init__(self, source: _Source, names: Sequence[str]) -> None:
        self._source = source
        self._kernels: dict[str, Kernel] = {}
        self._image = _Image.of(source, tuple(names))

    def get(self, name: str) -> Kernel:
        """A kernel by its C++ name, such as `scale` or `rms_norm<float, 4>`."""
        found = self._kernels.get(name)
        if found is None:
            found = self._kernels[name] = self._find(name)
        return found

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            kernel = self.get(name)
        except CompileError as problem:
            raise AttributeError(str(problem)) from None
        self.__dict__[name] = kernel  # the next access costs nothing
        return kernel

    def _find(self, name: str) -> Kernel:
        kernel = self._image.kernel(name) or _Image.of(self._source, (name,)).kernel(name)
        if kernel is None:
            raise CompileError(f"{self._source.file} has no kernel {name!r}", self._source.user_path)
        return Kernel(kernel, name)


class _Image:
    """Machine code on the device, and what C++ names are called in it."""

    def __init__(self, code: bytes, lowered: dict[str, str]) -> None:
        from cuda.core import ObjectCode

        self._lowered = lowered
        self._object = ObjectCode.from_cubin(code)

    @classmethod
    def of(cls, source: _Source, names: tuple[str, ...]) -> _Image:
        stem = os.path.join(source.cache, f"{os.path.splitext(source.file)[0]}-{_digest(source, names)}")
        try:
            with open(stem + ".json", encoding="utf-8") as lowered, open(stem + ".cubin", "rb") as code:
                return cls(code.read(), json.load(lowered))
        except (OSError, ValueError):
            image, names_in_it = compiled(source, names)
        os.makedirs(source.cache, exist_ok=True)
        _write(stem + ".json", json.dumps(names_in_it).encode())
        _write(stem + ".cubin", image)
        return cls(image, names_in_it)

    def kernel(self, name: str) -> Any:
        """cuda.core's kernel, or None where the image has none of this name."""
        try:
            return self._object.get_kernel(self._lowered.get(name, name))
        except Exception:  # cuda.core's error for a name that is not there is of no public class
            return None


class Kernel:
    """`kernel[grid, block](...)` or `kernel[grid, block, shared](...)`; shared is in bytes."""

    def __init__(self, kernel: Any, name: str) -> None:
        self._kernel, self._name = kernel, name
        self._sizes = _parameter_sizes(kernel)
        self._launchers: dict[Any, Callable[..., None]] = {}
        self._plans: dict[tuple[type, ...], tuple[Callable[[Any], Any] | None, ...]] = {}
        self._shared = STATIC_SHARED

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        found = self._launchers.get(where)
        if found is None:
            found = self._launchers[where] = self._launcher(*where)
        return found

    def _launcher(self, grid: Any, block: Any, shared: int = 0) -> Callable[..., None]:
        from cuda.core import LaunchConfig, launch

        if shared > self._shared:
            _allow_shared(self._kernel, self._name, shared)
            self._shared = shared
        config, kernel, plans, stream = LaunchConfig(grid, None, block, shared), self._kernel, self._plans, _streams()

        def run(*args: Any) -> None:
            kinds = tuple(map(type, args))
            plan = plans.get(kinds) or self._plan(kinds)
            ready = [arg if put is None else put(arg) for put, arg in zip(plan, args)]  # noqa: B905 - same length
            launch(stream(), config, kernel, *ready)

        return run

    def _plan(self, kinds: tuple[type, ...]) -> tuple[Callable[[Any], Any] | None, ...]:
        """How each argument is passed; worked out once per combination of types."""
        if self._sizes is not None and len(kinds) != len(self._sizes):
            raise TypeError(f"{self._name} takes {len(self._sizes)} arguments, and {len(kinds)} were given")
        sizes = self._sizes or (None,) * len(kinds)
        plan = []
        for index, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
            try:
                plan.append(passed(kind, size))
            except TypeError as problem:
                raise TypeError(f"{self._name}: argument {index} {problem}") from None
        self._plans[kinds] = tuple(plan)
        return self._plans[kinds]


def passed(kind: type, size: int | None) -> Callable[[Any], Any] | None:
    """What turns a value into one that cuda.core passes in `size` bytes; None when it can go as it is."""
    fits: tuple[int, ...]
    put: Callable[[Any], Any] | None
    if hasattr(kind, "data_ptr") or kind is type(None):
        what, fits, put = "a pointer", (8,), _pointer
    elif issubclass(kind, int):
        what, fits, put = "an int", (1, 2, 4, 8), _integers(size or 8)
    elif kind is float:
        what, fits, put = "a float", (4, 8), None if size == 8 else _single
    else:
        width = _width(kind)
        what, fits, put = f"a {kind.__name__} of {width} bytes", (width,), None
    if size is not None and size not in fits:
        raise TypeError(f"is {what}, but the kernel declares {size} bytes there")
    return put


def _pointer(tensor: Any) -> int:
    if tensor is None:
        return 0
    if not tensor.is_cuda:
        raise TypeError(f"a kernel got a tensor on {tensor.device}; it needs one on the GPU")
    return tensor.data_ptr()  # type: ignore[no-any-return]


def _single(value: float) -> Any:
    import numpy  # cuda.core knows its scalars fastest

    return numpy.float32(value)


@functools.lru_cache
def _integers(size: int) -> Callable[[int], int]:
    """The driver copies as many of the eight bytes as the kernel declares; the lowest come first."""
    low, high = -(1 << 8 * size - 1), 1 << 8 * size

    def put(value: int) -> int:
        if not low <= value < high:
            raise OverflowError(f"{value} does not fit the {size} bytes that the kernel declares")
        return value if value < 1 << 63 else value - (1 << 64)

    return put


def _width(kind: type) -> int:
    """Bytes of a numpy or ctypes scalar."""
    if kind.__module__ == "numpy" and hasattr(kind, "itemsize"):
        return int(kind(0).itemsize)
    if issubclass(kind, ctypes._SimpleCData):
        return ctypes.sizeof(kind)
    raise TypeError(f"is a {kind.__name__}; pass tensors, int, float, bool, None, numpy or ctypes scalars")


def _parameter_sizes(kernel: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(parameter.size) for parameter in kernel.arguments_info)
    except NotImplementedError:  # a driver before 12.4
        return None


def _allow_shared(kernel: Any, name: str, shared: int) -> None:
    """More than 48 KiB must be asked for, kernel by kernel."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    device = driver.CUdevice(torch.cuda.current_device())
    (status,) = driver.cuKernelSetAttribute(attribute, shared, kernel.handle, device)
    if int(status) != 0:
        most = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
        limit = f"at most {most}" if most else "less"
        raise ValueError(f"{name}: {shared} bytes of shared memory are refused; a block of this GPU may have {limit}")


@functools.lru_cache
def _streams() -> Callable[[], Any]:
    """torch's current stream as cuda.core's, in well under a microsecond."""
    from cuda.core import Stream

    known: dict[int, Any] = {}
    private: Any = torch._C
    handle_of, device = private._cuda_getCurrentRawStream, private._cuda_getDevice

    def current() -> Any:
        handle = handle_of(device())
        stream = known.get(handle)
        if stream is None:
            stream = known[handle] = Stream.from_handle(handle or LEGACY_STREAM)
        return stream

    return current


def load(
    name: str,
    defines: Mapping[str, Any] | None = None,
    includes: Sequence[str] = (),
    names: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Library:
    """Compiles (or finds) a CUDA file that lies beside the calling file."""
    scope = sys._getframe(1).f_globals
    folder = os.path.dirname(os.path.abspath(scope.get("__file__") or os.path.join(os.getcwd(), "-")))
    path, user_path = os.path.join(folder, name), os.path.join(scope.get("__kernbench_folder__") or folder, name)
    if not os.path.isfile(path):
        raise CompileError(f"there is no {name} beside the file that loads it", user_path)
    _require(user_path)
    folders = (os.path.dirname(path), *(os.path.join(folder, place) for place in includes))
    macros = [f"-D{key}={int(value) if isinstance(value, bool) else value}" for key, value in (defines or {}).items()]
    cache = scope.get("__kernbench_build__") or _user_cache()
    source = _Source(path, user_path, (*FLAGS, f"-arch={_architecture()}", *macros, *options), folders, cache)
    return Library(source, names)


def _require(user_path: str) -> None:
    file = os.path.basename(user_path)
    try:
        import cuda.bindings.nvrtc
        import cuda.core  # noqa: F401
    except ImportError as problem:
        raise CompileError(_MISSING.format(file=file, problem=problem), user_path) from None
    if not torch.cuda.is_available():
        raise CompileError(f"{file} needs an NVIDIA GPU, and torch sees none", user_path)


def _architecture() -> str:
    """Of the current device, with what only it can do: the image is for nobody else."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@functools.lru_cache
def header_folders() -> tuple[str, ...]:
    """Include folders of the toolkit: CUDA_HOME's, nvcc's, or those of the nvidia packages; with CCCL's."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    nvcc = shutil.which("nvcc")
    homes += [os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))] if nvcc else []
    for home in [*homes, "/usr/local/cuda", *_packages()]:
        for include in [f"{home}/include", *sorted(glob.glob(f"{home}/targets/*/include"))]:
            if os.path.isfile(f"{include}/cuda_fp16.h"):
                return (include, f"{include}/cccl") if os.path.isdir(f"{include}/cccl") else (include,)
    return ()


def _packages() -> list[str]:
    found: list[str] = []
    for name in ("nvidia.cu13", "nvidia.cuda_runtime"):
        with contextlib.suppress(ImportError):
            spec = importlib.util.find_spec(name)
            found += (spec.submodule_search_locations or ()) if spec else ()
    return found


def compiled(source: _Source, names: tuple[str, ...]) -> tuple[bytes, dict[str, str]]:
    """Machine code, and the C++ names with those they have in it."""
    from cuda.bindings import nvrtc

    with open(source.path, "rb") as file:
        text = file.read()
    program = _checked(nvrtc.nvrtcCreateProgram(text, source.user_path.encode(), 0, None, None))
    try:
        for name in names:
            _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        places = [f"-I{folder}" for folder in (*source.folders, *header_folders())]
        options = [option.encode() for option in (*source.options, *places)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        output = source.in_users_words(str(log, errors="replace"))
        if int(status) != 0:
            raise compile_error(output, source.user_path)
        if output:
            print(output, file=sys.stderr)  # warnings belong into the log
        code = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code, {name: _checked(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names}
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(answer: tuple[Any, ...]) -> Any:
    status, *rest = answer
    if int(status) != 0:
        raise RuntimeError(f"NVRTC: {status.name}")
    return rest[0] if rest else None


def compile_error(output: str, user_path: str) -> CompileError:
    """The first error of NVRTC's log as one sentence with its place."""
    found = _ERROR.search(output)
    if found is not None and found["file"].startswith("__nv"):  # a name that was asked for, not a line of the file
        asked = re.search(r"#pragma nv_mangled_name (.+)", output)
        kernel = asked[1].strip() if asked else "of that name"
        message = f"{os.path.basename(user_path)} has no kernel {kernel}: {found['what'].strip()}"
        return CompileError(message, user_path, None, output)
    if found is not None:
        return CompileError(found["what"].strip(), found["file"], int(found["line"]), output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it gave no message"
    return CompileError(f"NVRTC failed: {last}", user_path, None, output)


def _digest(source: _Source, names: tuple[str, ...]) -> str:
    from cuda.bindings import nvrtc

    parts = [source.user_path, *source.options, *header_folders(), *names, str(nvrtc.nvrtcVersion())]
    digest = hashlib.sha256("\0".join(parts).encode())
    for content in _texts(source):
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:24]


def _texts(source: _Source) -> list[bytes]:
    """The file and, recursively, the headers it includes from folders of the user's own."""
    seen: dict[str, bytes] = {}
    waiting = [os.path.realpath(source.path)]
    while waiting:
        current = waiting.pop()
        if current in seen or not os.path.isfile(current):
            continue
        with open(current, "rb") as file:
            seen[current] = file.read()
        for name in _INCLUDE.findall(seen[current]):
            for folder in (os.path.dirname(current), *source.folders):
                waiting.append(os.path.realpath(os.path.join(folder, name.decode(errors="replace"))))
    return list(seen.values())


def _write(path: str, content: bytes) -> None:
    """Whoever looks sees a whole file or none."""
    handle, partial = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".part")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(partial, path)


def _user_cache() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "kernbench", "cuda")
