"""`load("solution.cpp")`: host C++ through the system's compiler, ready to be called with tensors.

    from harness.host import load
    _cpp = load("solution.cpp")          # next to the file that calls load

    def softmax(x):
        out = torch.empty_like(x)
        _cpp.softmax(x, out, x.shape[0], x.shape[1])
        return out

    // solution.cpp: extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t columns)

Tensors are passed as their data pointer, int and bool as int64_t, float as double, None as a null pointer; functions
return nothing. An unchanged file (including its headers, flags and compiler) is compiled once. This file is
self-contained: it imports nothing else from the harness and can be copied next to a kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

UNFINISHED = "part-"
"""Folders of this prefix contain what a compiler is still writing."""
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-gdwarf-4", "-g1")
"""With line numbers, so that a crash can name its line: they change neither the code nor the time to compile it. In
version 5 of the format, addr2line gives the lines of a source that came through a pipe to `<stdin>`."""
ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<what>.+)$", re.MULTILINE)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


class CompileError(Exception):
    """The compiler failed: one sentence, and the location in the user's file."""

    def __init__(self, message: str, file: str, line: int | None = None, output: str = "") -> None:
        super().__init__(message)
        self.file, self.line, self.output = file, line, output


class Library:
    """A compiled file; its extern "C" functions are attributes."""

    def __init__(self, path: str, source: str) -> None:
        self._source = source
        try:
            self._library = ctypes.CDLL(path)
        except OSError as problem:
            what = str(problem).partition(": ")[2] or problem
            file = os.path.basename(source)
            raise CompileError(f"{file} was compiled but cannot be loaded: {what}", source) from None

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            self._library[name]
        except AttributeError:
            file = os.path.basename(self._source)
            raise AttributeError(f'{file} has no function {name!r}; is it extern "C"?') from None
        function = _Function(self._library, name)
        self.__dict__[name] = function  # the next access costs nothing
        return function


class _Function:
    """Calls one C function; the conversion is computed once per combination of argument types."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._library, self._name = library, name
        self._plans: dict[tuple[type, ...], tuple[Any, tuple[bool, ...]]] = {}

    def __call__(self, *args: Any) -> None:
        kinds = tuple(map(type, args))
        plan = self._plans.get(kinds) or self._plan(kinds)
        function, pointers = plan
        function(*[_pointer(arg) if pointer else arg for arg, pointer in zip(args, pointers)])  # noqa: B905 - same length

    def _plan(self, kinds: tuple[type, ...]) -> tuple[Any, tuple[bool, ...]]:
        function = self._library[self._name]
        function.restype = None
        function.argtypes = [self._argument(index, kind) for index, kind in enumerate(kinds)]
        plan = (function, tuple(hasattr(kind, "data_ptr") for kind in kinds))
        self._plans[kinds] = plan
        return plan

    def _argument(self, index: int, kind: type) -> type:
        if hasattr(kind, "data_ptr") or kind is type(None):
            return ctypes.c_void_p
        if issubclass(kind, int):
            return ctypes.c_int64
        if issubclass(kind, float):
            return ctypes.c_double
        wanted = "pass tensors, int, float, bool or None"
        raise TypeError(f"{self._name}: argument {index} is of type {kind.__name__}; {wanted}")


def _pointer(tensor: Any) -> int:
    if not tensor.is_cpu:
        raise TypeError(f"a host function got a tensor on {tensor.device}; pass one in host memory")
    return int(tensor.data_ptr())


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Holds a folder of builds. Every builder does, so anything unfinished there was left by a process that is gone."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock a folder
            fcntl.flock(handle, fcntl.LOCK_EX)
            for name in os.listdir(folder):
                if name.startswith(UNFINISHED):
                    shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        yield
    finally:
        os.close(handle)


def load(name: str, flags: Sequence[str] = ()) -> Library:
    """Compiles (or finds) a C++ file next to the calling file."""
    scope = sys._getframe(1).f_globals
    folder = os.path.dirname(os.path.abspath(scope.get("__file__") or os.path.join(os.getcwd(), "-")))
    user_folder = scope.get("__kernbench_folder__") or folder
    path, user_path = os.path.join(folder, name), os.path.join(user_folder, name)
    if not os.path.isfile(path):
        raise CompileError(f"no file {name} next to the file that loads it", user_path)
    compiler = _compiler(user_path)
    digest = hashlib.sha256("\0".join([user_path, *compiler, *FLAGS, *flags, stamp(compiler[0]), processor()]).encode())
    texts = _texts(path)
    for content in texts.values():
        digest.update(len(content).to_bytes(8, "little") + content)
    if "__kernbench_reads__" in scope:
        scope["__kernbench_reads__"](texts)
    cache = scope.get("__kernbench_build__") or _user_cache()
    stem = os.path.splitext(os.path.basename(name))[0]
    image = os.path.join(cache, f"{stem}-{digest.hexdigest()[:24]}.so")
    with contextlib.suppress(OSError):
        os.utime(image, ns=(time.time_ns(), os.stat(image).st_mtime_ns))  # so that what is in use is not pruned
    if not os.path.exists(image):
        os.makedirs(cache, exist_ok=True)
        with alone(cache):
            if not os.path.exists(image):  # else another process has compiled it meanwhile
                _compile(path, user_path, [*compiler, *FLAGS, *flags], image)
    return Library(image, user_path)


def _compile(path: str, user_path: str, command: list[str], image: str) -> None:
    folder = os.path.dirname(path)
    with open(path, "rb") as file:
        text = file.read()
    quoted = user_path.replace("\\", "\\\\").replace('"', '\\"')
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=os.path.dirname(image)) as work:
        partial = os.path.join(work, "image.so")
        command = [*command, "-iquote", folder, "-I", folder, "-x", "c++", "-", "-o", partial]
        given, own = f'#line 1 "{quoted}"\n'.encode() + text, {**os.environ, "TMPDIR": work}
        done = subprocess.run(command, input=given, capture_output=True, check=False, env=own)
        if done.returncode != 0:
            output = done.stderr.decode(errors="replace").replace(folder + os.sep, os.path.dirname(user_path) + os.sep)
            raise _error(output, user_path)
        os.replace(partial, image)  # readers see the whole file or none


def _error(output: str, user_path: str) -> CompileError:
    found = ERROR.search(output)
    if found is not None:
        return CompileError(found["what"].strip(), found["file"], int(found["line"]), output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "no message"
    return CompileError(f"the C++ compiler failed: {last}", user_path, None, output)


def _texts(path: str) -> dict[str, bytes]:
    """The file and, recursively, the headers it includes in quotes."""
    seen: dict[str, bytes] = {}
    waiting = [os.path.realpath(path)]
    while waiting:
        current = waiting.pop()
        if current in seen or not os.path.isfile(current):
            continue
        with open(current, "rb") as file:
            seen[current] = file.read()
        for name in _INCLUDE.findall(seen[current]):
            for folder in (os.path.dirname(current), os.path.dirname(path)):
                waiting.append(os.path.realpath(os.path.join(folder, name.decode(errors="replace"))))
    return seen


def _compiler(user_path: str) -> list[str]:
    """$CXX as given (it may include a launcher or flags), else the first compiler on PATH."""
    asked = shlex.split(os.environ.get("CXX", ""))
    for candidate in [asked] if asked else [["c++"], ["g++"], ["clang++"]]:
        found = shutil.which(candidate[0])
        if found:
            return [found, *candidate[1:]]
    raise CompileError("no C++ compiler found; install g++ or clang++, or set CXX", user_path)


@functools.lru_cache
def stamp(compiler: str) -> str:
    """Changes when the compiler is replaced; running it for its version would cost a process on every start."""
    about = os.stat(os.path.realpath(compiler))
    return f"{os.path.realpath(compiler)} {about.st_size} {about.st_mtime_ns}"


@functools.lru_cache
def processor() -> str:
    """What -march=native depends on: machines may share a cache."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().split("\n\n", 1)[0]
    except OSError:
        return platform.processor() or platform.machine()
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    return platform.machine() + "".join(line for line in first.splitlines() if line.startswith(wanted))


def _user_cache() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "kernbench", "host")
