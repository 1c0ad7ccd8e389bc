"""Python functions in a recording: which are outside torch, and by what name `capture` finds them."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernbench.rank.recording import Frame

FUNCTION = re.compile(r"(?P<file>[^()]+)\((?P<line>\d+)\): (?P<name>.+)")
MODULE = re.compile(r"nn\.Module: (?P<owner>.+)_\d+")
PACKAGES = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3\.\d+/")
MACHINERY = sys.stdlib_module_names - {"__main__"} | {
    *"torch triton functorch torchgen cutlass nvidia_cutlass_dsl tvm_ffi helion cupy numba numba_cuda".split()
}
GENERATED = ("torchinductor", "injection/stack_recorder.py", "/harness/cuda/", "<frozen ")
"""Parts of file names: code that torch.compile writes, the recorder, kernbench's launches, Python's own start."""


def parse(name: str, owner: str = "") -> Frame | None:
    """A function outside torch by its name in a trace, `layers.py(14): modulated_norm`; None for all others.

    Functions without a name, such as <lambda>, count as part of the function around them.
    """
    found = FUNCTION.fullmatch(name)
    if found is None or is_machinery(found["file"]):
        return None
    if found["name"].startswith("<") and found["name"] != "<module>":
        return None
    return Frame(found["file"], int(found["line"]), found["name"], owner if found["name"] == "forward" else "")


@functools.lru_cache(maxsize=1 << 16)
def is_relevant(name: str) -> bool:
    """Whether a function's name in a trace says anything about the code outside torch; most do not."""
    return MODULE.fullmatch(name) is not None or parse(name) is not None


def is_machinery(file: str) -> bool:
    """Whether a file belongs to torch, Python itself, generated code or what launches kernels."""
    if any(part in f"/{file}" for part in GENERATED):
        return True
    return PACKAGES.sub("", file).partition("/")[0].removesuffix(".py") in MACHINERY


@dataclass(frozen=True)
class Name:
    """What a function is called where it can be imported."""

    module: str
    inside: str
    place: str
    """FILE:LINE."""
    problem: str = ""
    """Why nothing can be put in its place."""

    @property
    def site(self) -> str:
        return f"{self.module}:{self.inside}"


@dataclass(frozen=True)
class Function:
    """A `def` in a file."""

    first: int
    last: int
    name: str
    inside: str
    """With the classes and functions around it."""

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


@dataclass
class Names:
    """Looks functions up in their files, where these can be found."""

    path: Sequence[Path]
    """The program's sys.path."""
    main: str = ""
    """The file that ran as __main__."""
    _found: dict[Path, list[Function]] = field(default_factory=dict)
    _names: dict[Frame, Name] = field(default_factory=dict)

    def of(self, frame: Frame) -> Name:
        if frame not in self._names:
            self._names[frame] = self._name(frame)
        return self._names[frame]

    def _name(self, frame: Frame) -> Name:
        file, function = self._look_up(frame)
        module, place = self._module(frame, file), f"{frame.file}:{function.first if function else frame.line}"
        own = f"{frame.owner}.{frame.name}" if frame.owner else frame.name
        inside = function.inside if function else own
        if frame.name == "<module>":
            problem = "it is code outside a function"
        elif "<locals>" in inside:
            problem = "it is a function inside a function"
        elif module == "__main__":
            problem = "it is part of the script itself; move it to a module"
        else:
            problem = "" if module else "its file is not on sys.path"
        return Name(module or frame.file, inside, place, problem)

    def _look_up(self, frame: Frame) -> tuple[Path | None, Function | None]:
        """The function in its file; a call that was running when the recording began has the line where it was."""
        for file in self._files(frame.file):
            around = [one for one in self._functions(file) if one.name == frame.name and one.holds(frame.line)]
            if around or (frame.name == "<module>" and file.is_file()):
                return file, max(around, key=lambda one: one.first, default=None)
        return None, None

    def _files(self, file: str) -> Iterator[Path]:
        if Path(file).is_absolute():
            yield Path(file)
        else:
            yield from (folder / file for folder in self.path)

    def _functions(self, file: Path) -> list[Function]:
        if file not in self._found:
            try:
                self._found[file] = [*functions(ast.parse(file.read_bytes()))]
            except (OSError, SyntaxError, ValueError, RecursionError):
                self._found[file] = []
        return self._found[file]

    def _module(self, frame: Frame, found: Path | None) -> str:
        if self.main and str(found or frame.file) == self.main:
            return "__main__"
        relative = frame.file
        if Path(relative).is_absolute():
            above = [folder for folder in self.path if Path(relative).is_relative_to(folder)]
            if not above:
                return ""
            relative = str(Path(relative).relative_to(max(above, key=lambda folder: len(folder.parts))))
        parts = Path(relative).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(node: ast.AST, inside: str = "") -> Iterator[Function]:
    """All functions below; they begin with their decorators."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield Function(first, child.end_lineno or first, child.name, f"{inside}{child.name}")
            yield from functions(child, f"{inside}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{inside}{child.name}.")
        else:
            yield from functions(child, inside)
