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
float); numpy scalars as they are. Number and widths of arguments are compared with the kernel's (where the
driver is too old to tell them: int as 64 bits, float as 32). `defines` is a dict, `includes` folders beside the file's
own and the toolkit's, `options` what NVRTC takes, such as "--use_fast_math". Kernels asked for by `names` are built by
`load`, others when `get` first asks. An unchanged file is compiled once. This file stands alone: it imports nothing
else of the harness and can be copied beside a kernel.

Calls that are done in 2 us on the GPU live on the launch path. `Plans` finds what was worked out for arguments of one
form again, `Kernel.prepared` launches numbers at which nobody looks again, `outputs_like` allocates:

    _plans = Plans()

    def rms_norm(x, weight, eps):
        for same_form, launch, output in _plans.get(x.shape, ()):
            if same_form(x, weight):
                out = output()
                launch(x.data_ptr(), weight.data_ptr(), out.data_ptr(), float(eps))
                return out
        _plans.keep(x.shape, (x, weight), _plan(x, weight))   # checks the arguments and makes launch and output
        return rms_norm(x, weight, eps)
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
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

FLAGS = ("-std=c++17", "-lineinfo", "--no-source-include")
INTEGERS = {8: "q", 4: "i", 2: "h", 1: "b"}
"""Codes of struct by width; where a width is not known the first is taken."""
_ERROR = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error.*?: (?P<what>.+)$", re.M)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)
_MISSING = (
    "it needs cuda-core and cuda-bindings, which this Python lacks ({problem}): "
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
        if name not in self._kernels:
            kernel = self._image.kernel(name) or _Image.of(self._source, (name,)).kernel(name)
            if kernel is None:
                raise CompileError(f"{self._source.file}: {name} is no __global__ function", self._source.user_path)
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


class _Image:
    """Machine code on the device, and what C++ names are called in it."""

    def __init__(self, code: bytes, lowered: dict[str, str]) -> None:
        from cuda.core import ObjectCode

        self._lowered = lowered
        self._object = ObjectCode.from_cubin(code)

    @classmethod
    def of(cls, source: _Source, names: tuple[str, ...]) -> _Image:
        stem = os.path.join(source.cache, f"{os.path.splitext(source.file)[0]}-{_digest(source, names)}")
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
            os.replace(partial, stem + suffix)  # whoever looks sees a whole file or none
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
        self._kernel, self._name = kernel, name  # the kernel keeps its image on the device
        self._declared = _declared(kernel)
        self._launchers: dict[Any, Callable[..., None]] = {}
        self._known = _Known()
        self._shared: dict[int, int] = {}
        """By device, the bytes that have been asked for."""

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        found = self._launchers.get(where)
        if found is None:
            found = self._launchers[where] = self._launcher(*where)
        return found

    def _launcher(self, grid: Any, block: Any, shared: int = 0) -> Callable[..., None]:
        start, known = self._start(grid, block, shared), self._known

        def run(*args: Any) -> None:
            kinds = tuple(map(type, args))
            packed = known.by_kinds.get(kinds) or self._pack(kinds)
            try:
                packed.fill(*args)
            except struct.error:
                packed.fill_unsigned(args)
            start(packed.extra)

        return run

    def prepared(self, grid: Any, block: Any, kinds: Sequence[type], shared: int = 0) -> Callable[..., None]:
        """`kernel[grid, block, shared]` for arguments of these types, at which nobody looks again.

        For callers that know their tensors and pass numbers, int for a pointer: it saves 0.7 us of twelve arguments.
        """
        start, mine = self._start(grid, block, shared), _Prepared(tuple(kinds), self._pack)

        def run(*args: Any) -> None:
            packed = mine.packed
            try:
                packed.fill(*args)
            except struct.error:
                packed.fill_unsigned(args)
            start(packed.extra)

        return run

    def _start(self, grid: Any, block: Any, shared: int) -> Callable[[int], None]:
        """Launches on torch's current stream, with the arguments that lie packed where `extra` says."""
        where = (*_three(grid), *_three(block), shared)
        driver, private = _driver(), torch._C
        # the bindings take bare numbers for handles too, but make and unmake an object of each in every call
        launch = functools.partial(driver.cuLaunchKernel, driver.CUfunction(int(self._kernel.handle)), *where)
        stream, device, streams = private._cuda_getCurrentRawStream, private._cuda_getDevice, _streams
        allowed = self._shared
        if shared:  # now, so that what the GPU refuses is said before anything runs
            self._allow(shared, device())

        def start(extra: int) -> None:
            here = device()
            if shared and shared > allowed.get(here, 0):
                self._allow(shared, here)
            (status,) = launch(streams[stream(here)], 0, extra)
            if status:
                raise self._refused(status, where)

        return start

    def _allow(self, shared: int, device: int) -> None:
        if shared > self._shared.get(device, 0):
            _allow_shared(self._kernel, self._name, shared, device)
            self._shared[device] = shared

    def _refused(self, status: Any, where: tuple[int, ...]) -> RuntimeError:
        spelled = f"grid {where[:3]}, block {where[3:6]}, {where[6]} bytes of shared memory"
        return RuntimeError(f"{self._name} cannot be launched: {status.name} ({spelled})")

    def _pack(self, kinds: tuple[type, ...]) -> Packed:
        try:
            packed = self._known.by_kinds[kinds] = Packed(kinds, self._declared)
        except TypeError as problem:
            raise TypeError(f"{self._name}: {problem}") from None
        return packed


class _Known(threading.local):
    """What a thread has packed so far: two threads never share a buffer."""

    def __init__(self) -> None:
        self.by_kinds: dict[tuple[type, ...], Packed] = {}


class _Prepared(threading.local):
    """The buffer that a thread has for one launcher."""

    def __init__(self, kinds: tuple[type, ...], pack: Callable[[tuple[type, ...]], Packed]) -> None:
        self.packed = pack(kinds)


class _Streams(dict[int, Any]):
    """Streams as the bindings' own objects, by the number that torch has for them."""

    def __missing__(self, number: int) -> Any:
        made = self[number] = _driver().CUstream(number)
        return made


_streams = _Streams()


class Packed:
    """The arguments of one combination of types, as they lie in the kernel's parameter memory."""

    def __init__(self, kinds: tuple[type, ...], declared: Sequence[tuple[int, int]] | None) -> None:
        if declared is not None and len(declared) != len(kinds):
            raise TypeError(f"the kernel takes {len(declared)} arguments, and {len(kinds)} were given")
        layout, end, self._puts = "<", 0, []
        for index, kind in enumerate(kinds):
            try:
                code, put = passed(kind, declared[index][1] if declared is not None else None)
            except TypeError as problem:
                raise TypeError(f"argument {index} {problem}") from None
            size = struct.calcsize("<" + code)
            offset = declared[index][0] if declared is not None else -(-end // size) * size
            layout += f"{offset - end}x{code}"
            end = offset + size
            self._puts.append(put)
        self._struct, self._size = struct.Struct(layout), ctypes.c_size_t(end)
        self.buffer = ctypes.create_string_buffer(max(1, end))
        self.fill = self._filler()
        places = (ctypes.addressof(self.buffer), ctypes.addressof(self._size))
        self._extra = (ctypes.c_void_p * 5)(1, places[0], 2, places[1], 0)  # pointer, size, end
        self.extra = ctypes.addressof(self._extra) if kinds else 0

    def _filler(self) -> Callable[..., None]:
        """A function of just these arguments: a loop over them would take as long as the rest of the launch."""
        names = [f"a{index}" for index in range(len(self._puts))]
        values = [name if put is None else f"put_{name}({name})" for name, put in zip(names, self._puts, strict=True)]
        scope: dict[str, Any] = {f"put_{name}": put for name, put in zip(names, self._puts, strict=True)}
        scope["pack"] = functools.partial(self._struct.pack_into, self.buffer, 0)
        if names == values:
            return scope["pack"]  # type: ignore[no-any-return]
        made: Callable[..., None] = eval(f"lambda {', '.join(names)}: pack({', '.join(values)})", scope)
        return made

    def fill_unsigned(self, args: Sequence[Any]) -> None:
        """The same where an integer is beyond the signed range."""
        codes = re.findall(r"[a-wyzA-Z]", self._struct.format)
        ready = [arg if put is None else put(arg) for put, arg in zip(self._puts, args, strict=True)]
        wrapped = [_unsigned(value, code) for value, code in zip(ready, codes, strict=True)]
        self._struct.pack_into(self.buffer, 0, *wrapped)


def passed(kind: type, size: int | None) -> tuple[str, Callable[[Any], Any] | None]:
    """The struct code for values of a type where the kernel declares `size` bytes, and what turns them into it."""
    put: Callable[[Any], Any] | None = None
    if hasattr(kind, "data_ptr") or kind is type(None):
        what, codes, put = "a pointer", {8: "Q"}, _address if kind is not type(None) else lambda _: 0
    elif issubclass(kind, int):
        what, codes = "an int", INTEGERS
    elif kind is float:
        what, codes = "a float", {4: "f", 8: "d"}
    else:
        code, put = _scalar(kind)
        width = struct.calcsize("<" + code)
        what, codes = f"a {kind.__name__} of {width} bytes", {width: code}
    if size is not None and size not in codes:
        raise TypeError(f"is {what}, but the kernel declares {size} bytes there")
    return codes[size or next(iter(codes))], put


def _scalar(kind: Any) -> tuple[str, Callable[[Any], Any] | None]:
    """Of numpy: they say their width themselves."""
    if kind.__module__ == "numpy" and hasattr(kind, "itemsize"):
        about = kind(0).dtype
        if about.kind in "iub":
            return INTEGERS[about.itemsize], int
        if about.kind == "f" and about.itemsize <= 8:
            return {2: "e", 4: "f", 8: "d"}[about.itemsize], None
    raise TypeError(f"is a {kind.__name__}; pass tensors, int, float, bool, None or numpy scalars")


def _address(tensor: Any) -> int:
    if not tensor.is_cuda:
        raise TypeError(f"a kernel got a tensor on {tensor.device}; it needs one on the GPU")
    return tensor.data_ptr()  # type: ignore[no-any-return]


def _unsigned(value: Any, code: str) -> Any:
    """An integer beyond the signed range is one of an unsigned parameter: the same bits."""
    bits = 8 * struct.calcsize("<" + code)
    if code not in INTEGERS.values() or -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    if not 0 <= value < 1 << bits:
        raise OverflowError(f"{value} does not fit the {bits // 8} bytes that the kernel declares")
    return value - (1 << bits)


def _declared(kernel: Any) -> list[tuple[int, int]] | None:
    """Offset and size of every parameter; None from a driver before 12.4."""
    try:
        return [(int(item.offset), int(item.size)) for item in kernel.arguments_info]
    except NotImplementedError:
        return None


def _three(extent: Any) -> tuple[int, ...]:
    given = tuple(extent) if isinstance(extent, (tuple, list)) else (extent,)
    if not 1 <= len(given) <= 3 or any(length < 1 for length in given):
        raise ValueError(f"{extent} is no grid or block: one to three numbers, each 1 or more")
    return (*given, 1, 1)[:3]


def _driver() -> Any:
    """The launch itself is one call of the driver's, which takes arguments that are packed already."""
    from cuda.bindings import driver

    return driver


def _allow_shared(kernel: Any, name: str, shared: int, device: int) -> None:
    """More than 48 KiB, what the kernel declares itself included, must be asked for, by kernel and GPU."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, shared, kernel.handle, driver.CUdevice(device))
    if int(status) != 0:
        most = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
        limit = f"at most {most}" if most else "less"
        raise ValueError(f"{name}: {shared} bytes of shared memory are refused; a block of this GPU may have {limit}")


MOST_KEYS, MOST_FORMS = 4096, 8
"""Lengths that never come back must not fill the memory; the forms that have a key in common are found by trying."""


class Plans(dict[Any, list[tuple[Any, ...]]]):
    """By a key of the caller's, plans for the forms of tensors that were seen with it: `(same_form, *plan)` each."""

    def keep(self, key: Any, tensors: Sequence[torch.Tensor], plan: Sequence[Any]) -> None:
        if any(x.is_neg() for x in tensors):
            raise ValueError("a tensor is the negative of what its memory holds; pass its resolve_neg() instead")
        if len(self) >= MOST_KEYS:
            self.clear()
        alike = self.setdefault(key, [])
        del alike[: max(0, len(alike) + 1 - MOST_FORMS)]
        alike.append((same_form_as(*tensors), *plan))


def same_form_as(*tensors: torch.Tensor) -> Callable[..., bool]:
    """A function of as many tensors: whether each has the type, dtype, device, shape and strides of its example.

    Torch has one for it, with which torch.compile guards its graphs; it also tells tensors with gradients and calls in
    inference mode from others, which only costs a plan more. Beside an H200 it saves 0.7 us for six tensors.
    """
    guards = _of_torch_compile("TensorGuards")
    shapes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    with contextlib.suppress(TypeError):  # a torch that has none, or another one
        same: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
        if same(*tensors):  # it is not where one tensor is given twice
            return same
    forms = [_form(x) for x in tensors]
    return lambda *others: [_form(x) for x in others] == forms


def _form(x: torch.Tensor) -> tuple[Any, ...]:
    return type(x), x.dtype, x.device, x.shape, x.stride(), x.is_neg()


def outputs_like(
    x: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format
) -> Callable[[], torch.Tensor]:
    """A function that allocates on the current device what `torch.empty_like` would, a plain tensor in any case, by
    torch.compile's own way.

    While a mode looks on at what torch dispatches, it is torch's public function, so that the mode sees the output.
    """
    about = torch.empty_like(x, device="meta", memory_format=memory_format)
    size, stride, dtype, device = tuple(about.shape), about.stride(), x.dtype, x.device
    onlookers = getattr(torch._C, "_len_torch_dispatch_stack", None)
    allocated = _of_torch_compile("_empty_strided_cuda")
    if allocated is None or onlookers is None or not x.is_cuda:
        return lambda: torch.empty_strided(size, stride, dtype=dtype, device=device)

    def output() -> torch.Tensor:
        if onlookers():
            return torch.empty_strided(size, stride, dtype=dtype, device=device)
        return allocated(size, stride, dtype)  # type: ignore[no-any-return]

    return output


def _of_torch_compile(name: str) -> Any:
    """What the code that torch.compile makes calls; None in a torch that has it no more."""
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module("torch._C._dynamo.guards"), name, None)
    return None


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
    cache = scope.get("__kernbench_build__") or os.path.expanduser("~/.cache/kernbench/cuda")
    source = _Source(path, user_path, (*FLAGS, f"-arch={_architecture()}", *macros, *options), folders, cache)
    if "__kernbench_reads__" in scope:
        scope["__kernbench_reads__"](_texts(source))
    return Library(source, names)


def _require(user_path: str) -> None:
    if not torch.cuda.is_available():
        raise CompileError("it needs an NVIDIA GPU, and torch sees none here", user_path)
    try:
        import cuda.bindings.nvrtc
        import cuda.core  # noqa: F401
    except ImportError as problem:
        raise CompileError(_MISSING.format(problem=problem), user_path) from None


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
        log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))  # never bytes: they are shared
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        output = source.in_users_words(str(log, errors="replace"))
        if int(status) != 0:
            raise compile_error(output, source.user_path)
        if output:
            print(output, file=sys.stderr)  # warnings belong into the log
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return bytes(code), {
            name: _checked(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names
        }
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
    for content in _texts(source).values():
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:24]


def _texts(source: _Source) -> dict[str, bytes]:
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
    return seen
