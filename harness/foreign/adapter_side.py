"""bench/adapter.py of a KDA-Pilot folder, loaded from a copy of that folder: one per side.

An adapter finds its neighbours by path and by name (`baseline.binding`, `solution.build`, a file next to itself), and
the code that it loads builds into that folder. So each side has its own copy, in the task's folder of builds. In it
`solution` is the task's own, or a stand-in where only the baseline is called. Code is compiled under the name of the
original file, which tracebacks then show.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness import host
from harness.load.failure import SIDE_PREFIX
from harness.load.side import Side

ADAPTER, BENCH, SOLUTION = "bench/adapter.py", "bench", "solution"


class AdapterSide(Side):
    """The copy of a side, given by the global names of its reference.py or solution.py, with these files."""

    def __init__(self, scope: Mapping[str, Any], names: Sequence[str]) -> None:
        self._original = os.path.dirname(os.path.abspath(scope["__file__"]))
        self._has_solution = any(name.startswith(f"{SOLUTION}/") for name in names)
        self._named: dict[str, types.ModuleType] = {}
        """Modules that this folder's code has put into `sys.modules` under other names."""
        paths = {name: os.path.join(self._original, name) for name in names}
        scope.get("__kernbench_reads__", list)(list(paths.values()))
        build = str(scope.get("__kernbench_build__", ""))
        package = str(scope["__name__"]).partition(".")[0]
        role = package.removeprefix(SIDE_PREFIX).rpartition("_")[0]
        super().__init__(role, _copied(paths, build), str(scope.get("__kernbench_folder__", "")), build)
        vars(self._importlib)["util"] = _util_for(self)
        if role in _open:
            _open[role].close()  # that of an earlier source, which is unloaded
        _open[role] = self

    def adapter(self) -> types.ModuleType:
        with self.at_work():
            return self.module(ADAPTER)

    def shown(self, path: str) -> str:
        return os.path.join(self._original, os.path.relpath(path, self.folder))

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """While the folder's code loads or does something for the first time: only its own modules are found by name,
        and what it does to `sys.path` is undone."""
        global _present
        with contextlib.suppress(OSError):
            os.utime(self.folder)  # so that what is in use is not pruned
        if _present is not self:
            if _present is not None:
                _present._leave()
            sys.modules.update(self._named)
            _present = self
        before, path = set(sys.modules), list(sys.path)
        try:
            yield
        finally:
            sys.path[:] = path
            fresh = [name for name in set(sys.modules) - before if not name.startswith(SIDE_PREFIX)]
            mine = [name for name in fresh if self._is_inside(sys.modules[name])]
            tops = {name.partition(".")[0] for name in (*mine, *self._named)}
            self._named |= {name: sys.modules[name] for name in [*sys.modules] if name.partition(".")[0] in tops}

    def close(self) -> None:
        self._leave()
        super().close()

    def _leave(self) -> None:
        """Takes its modules out of `sys.modules`, also those that came outside of `at_work`."""
        for name, module in list(sys.modules.items()):
            if module is self._named.get(name) or (self._is_inside(module) and not name.startswith(SIDE_PREFIX)):
                self._named[name] = sys.modules.pop(name)

    def _is_inside(self, module: types.ModuleType) -> bool:
        names: dict[str, Any] = getattr(module, "__dict__", {})  # asks no module that loads what it is asked for
        return str(names.get("__file__", "")).startswith(self.folder + os.sep)

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - the signature of __import__
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        top = name.partition(".")[0]
        if level == 0 and top == SOLUTION and not self._has_solution:
            return _StandIn(name)
        if level == 0 and not self.holds(top) and self.holds(f"{BENCH}/{top}"):  # the adapter's neighbour
            module = importlib.import_module(f"{self.package}.{BENCH}.{name}")
            if not fromlist:
                return sys.modules[f"{self.package}.{BENCH}.{top}"]
            return builtins.__import__(module.__name__, globals, locals, fromlist, 0)
        return super()._import(name, globals, locals, fromlist, level)

    def spec_of(self, path: str) -> importlib.machinery.ModuleSpec | None:
        """Of a Python file in the copy, as a module of this side; None for any other file."""
        below = os.path.relpath(os.path.abspath(path), self.folder)
        if below.startswith("..") or not below.endswith(".py"):
            return None
        return self.spec(f"{self.package}.{below.removesuffix('.py').replace(os.sep, '.')}")


class _StandIn(types.ModuleType):
    """`solution` where it is not called: whatever an adapter takes from it is there and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self


def _util_for(side: AdapterSide) -> types.ModuleType:
    """`importlib.util` as the side sees it: a file that it loads by its path becomes a module of the side, so that two
    sides never share the operators which it registers."""

    class Util(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.util, name)

    def spec_from_file_location(name: str, location: Any = None, **more: Any) -> Any:
        own = side.spec_of(os.fspath(location)) if location is not None and not more else None
        return own or importlib.util.spec_from_file_location(name, location, **more)

    seen = Util("importlib.util")
    vars(seen)["spec_from_file_location"] = spec_from_file_location
    return seen


def _copied(paths: Mapping[str, str], build: str) -> str:
    """A folder with these files, by their path in it; files with the same texts have the same folder."""
    texts = {}
    for name, path in paths.items():
        with open(path, "rb") as file:
            texts[name] = file.read()
    digest = hashlib.sha256()
    for name, text in texts.items():
        digest.update(os.fsencode(f"{name}\0{len(text)}\0") + text)
    root = os.path.join(build, "extensions") if build else os.path.join(tempfile.gettempdir(), "kernbench-kda")
    place = os.path.join(os.path.realpath(root), f"kda-{digest.hexdigest()[:24]}")
    os.makedirs(root, exist_ok=True)
    with host.alone(root):
        if not os.path.isdir(place):
            work = tempfile.mkdtemp(prefix=host.UNFINISHED, dir=root)
            for name, text in texts.items():
                os.makedirs(os.path.dirname(os.path.join(work, name)), exist_ok=True)
                with open(os.path.join(work, name), "wb") as file:
                    file.write(text)
            os.rename(work, place)
    return place


_open: dict[str, AdapterSide] = {}
"""By role: a worker has one side of each at a time."""
_present: AdapterSide | None = None
"""Whose modules are in `sys.modules` under other names than those of a side."""
