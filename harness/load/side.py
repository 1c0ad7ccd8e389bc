"""A snapshot folder -> a callable, in a separate package.

Every side (solution, best, baseline, reference) is a package `_kb_<side>_<sha8>` whose modules are compiled from the
snapshot's text, never from bytecode: two saves of equal length within a second cannot be mistaken for each other.
`import helper` finds the side's helper, both at the top of a file and inside a function, because each side's modules
have builtins with an `__import__` that searches the snapshot first. So two sides with helpers of the same name never
collide, and `sys.path` stays untouched.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.load import extensions, native_stack, operator_names
from harness.load.failure import SIDE_PREFIX
from harness.shared import used_files

LARGEST_SOURCE = 1 << 20


class Unreadable(Exception):
    """Python cannot compile the file, and names no line or none that helps."""

    def __init__(self, message: str, file: str, line: int | None = None) -> None:
        super().__init__(message)
        self.file, self.line = file, line


class MissingEntry(Exception):
    """The file loaded but does not define the entry named in task.toml."""

    def __init__(self, file: str, entry: str) -> None:
        super().__init__(f"it does not define '{entry}' (entry in task.toml)")
        self.file, self.line = file, None


class Side:
    """One snapshot, loaded under a unique name until it is closed."""

    def __init__(self, role: str, folder: str, user_folder: str, build: str = "") -> None:
        self.role = role
        self.folder = os.path.abspath(folder)
        self.user_folder = user_folder
        self.build = build
        self.package = f"{SIDE_PREFIX}{role}_{_digest(self.folder)}"
        self.loaded: dict[str, str] = {}
        """Files that this side consists of, relative to its folder, with their hashes."""
        self.operators = operator_names.Names(self.package, self._sources())
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}
        self._importlib = _importlib_for(self)

    def module(self, file: str) -> types.ModuleType:
        """Runs a file of the snapshot and returns its module."""
        _sides[self.package] = self
        operator_names.install()
        extensions.use(self.build)
        name = os.path.splitext(file)[0].replace("/", ".").replace(os.sep, ".")
        return importlib.import_module(f"{self.package}.{name}")

    def entry(self, file: str, name: str) -> Callable[..., Any]:
        found = getattr(self.module(file), name, None)
        if not callable(found):
            raise MissingEntry(os.path.join(self.folder, file), name)
        return found  # type: ignore[no-any-return]

    def spec(self, fullname: str) -> importlib.machinery.ModuleSpec | None:
        """What a module of this side is loaded from; None if it has no such module."""
        parts = fullname.split(".")[1:]
        base = os.path.join(self.folder, *parts)
        if not parts:
            return _spec(fullname, _Loader(self, None), base)
        if os.path.isfile(base + ".py"):
            return _spec(fullname, _Loader(self, base + ".py"), None)
        init = os.path.join(base, "__init__.py")
        if os.path.isdir(base):
            return _spec(fullname, _Loader(self, init if os.path.isfile(init) else None), base)
        return None

    def shown(self, path: str) -> str:
        """The path under which a file's code is compiled, and which tracebacks name."""
        return path

    def reads(self, paths: Iterable[str]) -> None:
        """Registers files compiled for this side: C++, CUDA and headers are part of it, like its Python."""
        native_stack.install(paths, self.build)
        here = os.path.realpath(self.folder)
        for path in paths:
            inside = os.path.commonpath([here, os.path.realpath(path)]) == here
            name = os.path.relpath(os.path.realpath(path), here) if inside else os.path.realpath(path)
            self.loaded[name] = _file_digest(path)

    def same_in(self, folder: str) -> bool:
        """Whether every file this side loaded is the same in another snapshot."""
        return all(_file_digest(os.path.join(folder, name)) == digest for name, digest in self.loaded.items())

    def mentions(self, *words: str) -> bool:
        """Whether any loaded Python file contains one of the words."""
        return any(word.encode() in text for word in words for text in self._texts())

    def imports(self) -> set[str]:
        """Top-level names that its loaded Python files import, or would in a function, from outside its folder."""
        text = b"\n".join(self._texts())
        return {name for name in used_files.imported(text.decode(errors="replace")) if not self.holds(name)}

    def _texts(self) -> list[bytes]:
        return [_read(os.path.join(self.folder, name)) for name in self.loaded if name.endswith(".py")]

    def close(self) -> None:
        """Unloads the side: modules, operators, cached source lines."""
        _sides.pop(self.package, None)
        for name in [name for name in sys.modules if name == self.package or name.startswith(self.package + ".")]:
            # Torch may keep a function forever; clearing its module still frees weights and buffers.
            sys.modules.pop(name).__dict__.clear()
        for path in self.loaded:
            linecache.cache.pop(os.path.join(self.folder, path), None)
        self.operators.release()

    def holds(self, top: str) -> bool:
        """Whether a top-level name is a Python file, or a folder with Python files, in this snapshot."""
        path = os.path.join(self.folder, top)
        if os.path.isfile(path + ".py"):
            return True
        return os.path.isdir(path) and any(name.endswith(".py") for name in os.listdir(path))

    def _sources(self) -> list[str]:
        return [
            os.path.join(parent, name)
            for parent, folders, names in os.walk(self.folder)
            for name in names
            if name.endswith(".py") and not os.path.basename(parent).startswith(".")
        ]

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - the signature of __import__
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        top = name.partition(".")[0]
        if level == 0 and self.holds(top):
            module = importlib.import_module(f"{self.package}.{name}")
            if not fromlist:
                return sys.modules[f"{self.package}.{top}"]
            return builtins.__import__(module.__name__, globals, locals, fromlist, 0)
        module = builtins.__import__(name, globals, locals, fromlist or (), level)
        return self._importlib if module is importlib else module


def _importlib_for(side: Side) -> types.ModuleType:
    """`importlib` as a side sees it: `import_module("helper")` also finds the side's helper."""

    class Importlib(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(importlib, name)

    def import_module(name: str, package: str | None = None) -> types.ModuleType:
        if not name.startswith(".") and side.holds(name.partition(".")[0]):
            name = f"{side.package}.{name}"
        return importlib.import_module(name, package)

    seen = Importlib("importlib", importlib.__doc__)
    seen.__dict__["import_module"] = import_module
    return seen


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `_kb_...` packages and their modules; leaves every other name to other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(SIDE_PREFIX):
            return None
        side = _sides.get(fullname.partition(".")[0])
        return None if side is None else side.spec(fullname)


def _spec(name: str, loader: _Loader, folder: str | None) -> importlib.machinery.ModuleSpec:
    spec = importlib.machinery.ModuleSpec(name, loader, origin=loader.path, is_package=folder is not None)
    spec.has_location = loader.path is not None
    if folder is not None:
        spec.submodule_search_locations = [folder]
    return spec


class _Loader(importlib.abc.InspectLoader):
    """Compiles from the text on disk. Code objects name the snapshot's file, so tracebacks and Triton read what ran."""

    def __init__(self, side: Side, path: str | None) -> None:
        self.side, self.path = side, path

    def get_source(self, fullname: str) -> str | None:
        return None if self.path is None else importlib.util.decode_source(_read(self.path))

    def is_package(self, fullname: str) -> bool:
        return self.path is None or os.path.basename(self.path) == "__init__.py"

    def exec_module(self, module: types.ModuleType) -> None:
        side = self.side
        scope = module.__dict__
        scope["__builtins__"] = side.builtins
        scope["__kernbench_folder__"] = side.user_folder
        scope["__kernbench_build__"] = side.build
        scope["__kernbench_reads__"] = side.reads
        if self.path is None:
            return
        content = _read(self.path)
        side.loaded[os.path.relpath(self.path, side.folder)] = hashlib.sha256(content).hexdigest()
        shown = side.shown(self.path)
        linecache.cache.pop(shown, None)
        exec(_compiled(content, shown), scope)


def _compiled(content: bytes, path: str) -> types.CodeType:
    if b"\0" in content:  # Python does not say where
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        raise Unreadable("the file contains a NUL byte, so it is not Python text; save it again as text", path, line)
    try:
        return compile(content, path, "exec", dont_inherit=True)
    except (MemoryError, RecursionError) as problem:
        what = f"Python cannot compile it ({type(problem).__name__}): an expression is nested too deeply"
        raise Unreadable(what, path) from None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _file_digest(path: str) -> str:
    try:
        return hashlib.sha256(_read(path)).hexdigest()
    except OSError:
        return ""


def _digest(folder: str) -> str:
    """Eight hex digits of a hash of the snapshot's text: each save is a new package."""
    digest = hashlib.sha256(os.fsencode(folder))
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(parent, name)
            if os.path.isfile(path) and os.path.getsize(path) <= LARGEST_SOURCE:
                digest.update(os.fsencode(name) + b"\0" + _read(path))
    return digest.hexdigest()[:8]


_sides: dict[str, Side] = {}
sys.meta_path.insert(0, _Finder())
