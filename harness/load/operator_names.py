"""Gives the operators that a source registers with torch unique names per side.

`torch.library` is one registry for the whole process: if two sources use the same `custom_op` name, the first module
runs the second's body. So calls to `torch.library` from a side's module get a suffix on the namespace. A source that
also names `torch.ops.<namespace>` directly cannot be renamed; its names stay as they are and count as shared, and a
source with shared names is not compared with best.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from harness.load.failure import SIDE_PREFIX
from harness.private import torch_private

DEFINERS = ("custom_op", "triton_op", "define")
REGISTERERS = ("impl", "register_fake", "impl_abstract", "register_kernel", "register_autograd", "register_vmap")
MORE_REGISTERERS = ("register_torch_dispatch", "register_autocast")
_SPELLED = re.compile(rb"\bops\s*\.\s*([A-Za-z_]\w*)")
_loads = itertools.count(1)
_names: dict[str, Names] = {}


class Names:
    """The operator names of one side."""

    def __init__(self, package: str, sources: Iterable[str]) -> None:
        self.package = package
        self.suffix = f"_{package}_{next(_loads)}"  # a reloaded source must not collide with its earlier load
        self.spelled = {match.decode() for path in sources for match in _SPELLED.findall(_read(path))}
        self.shared: set[str] = set()
        """Namespaces in which this side defines operators and which could not be renamed."""
        self._own: set[str] = set()
        self._libraries: list[Any] = []
        _names[package] = self

    def rename(self, name: str, defines: bool) -> str:
        """The name under which this side registers `ns` or `ns::op`."""
        namespace, colons, rest = name.partition("::")
        if defines and namespace not in self._own:
            if namespace in self.spelled:
                self.shared.add(namespace)
                return name
            self._own.add(namespace)
        return f"{namespace}{self.suffix}{colons}{rest}" if namespace in self._own else name

    def keep(self, library: Any) -> None:
        self._libraries.append(library)

    def release(self) -> None:
        """Removes the side's operators from torch's registry, as far as torch allows."""
        _names.pop(self.package, None)
        torch_private.drop_operators(self.suffix, self._libraries)
        self._libraries.clear()


def install() -> None:
    """Wraps torch.library with the renaming, once; other callers see no difference."""
    import torch.library as library

    if getattr(library, "_kernbench_renames", False):
        return
    library._kernbench_renames = True  # type: ignore[attr-defined]
    for name in (*DEFINERS, *REGISTERERS, *MORE_REGISTERERS):
        original = getattr(library, name, None)
        if original is not None:
            setattr(library, name, _renaming(original, name in DEFINERS))
    library.Library.__init__ = _renaming_library(library.Library.__init__)  # type: ignore[method-assign]


def _renaming(original: Callable[..., Any], defines: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(name: Any, *args: Any, **kwargs: Any) -> Any:
        names = _caller()
        if names is not None and isinstance(name, str):
            name = names.rename(name, defines)
        return original(name, *args, **kwargs)

    return call


def _renaming_library(original: Callable[..., None]) -> Callable[..., None]:
    """Wraps `Library.__init__`, not the class: torch checks against the class by name."""

    @functools.wraps(original)
    def create(self: Any, ns: str, kind: str, *args: Any, **kwargs: Any) -> None:
        names = _caller()
        if names is not None:
            ns = names.rename(ns, defines=kind != "IMPL")
            names.keep(self)
        original(self, ns, kind, *args, **kwargs)

    return create


def _caller() -> Names | None:
    """The side whose module calls torch.library directly, if one does."""
    module = sys._getframe(2).f_globals.get("__name__", "")
    return _names.get(module.partition(".")[0]) if module.startswith(SIDE_PREFIX) else None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
