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

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        then = self._then.pop(fullname, None)  # popped first: the other finders are asked below
        if then is None:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    _follow(spec.loader, then)
                return spec
        self._then[fullname] = then  # not found yet: a later import may find it
        return None


def _follow(loader: Any, then: Then) -> None:
    """The loader of this one module goes on to `then`."""
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        then(module)

    loader.exec_module = exec_module
