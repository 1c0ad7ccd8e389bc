"""Does something to a module right after it was imported, before its importers copy names out of it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]


def after_import(then: dict[str, Then]) -> None:
    """By the module's name; modules that are there already are taken at once."""
    for name in [name for name in then if name in sys.modules]:
        then[name](sys.modules[name])
    sys.meta_path.insert(0, _Finder({name: act for name, act in then.items() if name not in sys.modules}))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, then: dict[str, Then]) -> None:
        self._then = then
        self._asked: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._then or fullname in self._asked:
            return None
        self._asked.add(fullname)  # the other finders are asked below
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target) if find else None
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        self._follow(spec.loader, fullname)
                    return spec
            return None
        finally:
            self._asked.discard(fullname)

    def _follow(self, loader: Any, name: str) -> None:
        """The loader of this one module goes on to what is to follow; programs also ask for specs that they never
        load, to see what is installed."""
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            if (then := self._then.pop(name, None)) is not None:
                then(module)

        loader.exec_module = exec_module
