"""Compiles a CUDA file with NVRTC: its sources, its header folders, and errors at the user's lines."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from typing import Any

FLAGS = ("-std=c++17", "-lineinfo", "--no-source-include")
ERROR = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error.*?: (?P<what>.+)$", re.M)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)


class CompileError(Exception):
    """NVRTC failed: one sentence, and the location in the user's file."""

    def __init__(self, message: str, file: str, line: int | None = None, output: str = "") -> None:
        super().__init__(message)
        self.file, self.line, self.output = file, line, output


@dataclass(frozen=True)
class Source:
    """A file, its compile options, and its image cache."""

    path: str
    user_path: str
    options: tuple[str, ...]
    folders: tuple[str, ...]
    """The user's folders, searched first for headers."""
    cache: str

    @property
    def file(self) -> str:
        return os.path.basename(self.user_path)

    def in_users_words(self, log: str) -> str:
        here, there = os.path.dirname(self.path), os.path.dirname(self.user_path)
        return log.rstrip("\0 \n").replace(here + os.sep, there + os.sep)


@functools.lru_cache
def header_folders() -> tuple[str, ...]:
    """Include folders of the toolkit, including CCCL's: from CUDA_HOME, nvcc, or the nvidia packages."""
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


def compiled(source: Source, names: tuple[str, ...]) -> tuple[bytes, dict[str, str], bytes]:
    """Machine code, the lowered names of the C++ names in it, and its PTX."""
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
            print(output, file=sys.stderr)  # warnings belong in the log
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        lowered = {name: _checked(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names}
        return bytes(code), lowered, _ptx(program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _ptx(program: Any) -> bytes:
    """Only to be read by people: an NVRTC that keeps none is as good."""
    from cuda.bindings import nvrtc

    with contextlib.suppress(RuntimeError):
        text = bytearray(_checked(nvrtc.nvrtcGetPTXSize(program)))
        _checked(nvrtc.nvrtcGetPTX(program, text))
        return bytes(text).rstrip(b"\0")
    return b""


def _checked(answer: tuple[Any, ...]) -> Any:
    status, *rest = answer
    if int(status) != 0:
        raise RuntimeError(f"NVRTC: {status.name}")
    return rest[0] if rest else None


def compile_error(output: str, user_path: str) -> CompileError:
    """The first error in NVRTC's log as one sentence with its location."""
    found = ERROR.search(output)
    if found is not None and found["file"].startswith("__nv"):  # a requested name, not a line of the file
        asked = re.search(r"#pragma nv_mangled_name (.+)", output)
        kernel = asked[1].strip() if asked else "of that name"
        message = f"{os.path.basename(user_path)} has no kernel {kernel}: {found['what'].strip()}"
        return CompileError(message, user_path, None, output)
    if found is not None:
        return CompileError(found["what"].strip(), found["file"], int(found["line"]), output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "no message"
    return CompileError(f"NVRTC failed: {last}", user_path, None, output)


def digest(source: Source, names: tuple[str, ...]) -> str:
    from cuda.bindings import nvrtc

    parts = [source.user_path, *source.options, *header_folders(), *names, str(nvrtc.nvrtcVersion())]
    digest = hashlib.sha256("\0".join(parts).encode())
    for content in texts(source).values():
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:24]


def texts(source: Source) -> dict[str, bytes]:
    """The file and, recursively, the headers it includes from the user's folders."""
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
