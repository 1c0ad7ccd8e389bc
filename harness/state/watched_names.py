"""The closed list of functions that a source must not replace: by identity, with their code and defaults.

It covers the harness and Triton whole, the parts of torch that references call, builtins and clocks. Torch's own tables
as a whole would take 66 to 131 ms a look and change with every first compile. Names that are new never count, except in
the harness's own classes.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any

from harness.private import process_state

WHOLE = ("harness", "triton")
PYTHON = ("builtins", "time", "math", "os", "gc", "json", "json.encoder", "json.decoder", "threading", "ctypes",
          "select", "signal", "queue", "random", "statistics", "hashlib", "importlib", "inspect", "copy", "weakref",
          "contextlib", "functools", "dataclasses")  # fmt: skip
CLASSES = process_state.classes()
SET_BY_TORCH = frozenset(
    {
        ("torch", "manual_seed"), ("torch", "compile"), ("Module", "__init__"), ("Module", "__setstate__"),
        ("Module", "_call_impl"),
        ("torch.nn.functional", "scaled_dot_product_attention"),
    }
)  # fmt: skip
"""What a first torch.compile or custom operator replaces by code of torch."""
FOLLOWS_SETTINGS = frozenset({("torch", "Storage")})
"""Set by torch along with the default dtype."""
LIBRARIES = ("torch", "triton")
LOCKS = type(threading.Lock()), type(threading.RLock())
INTERPRETED = "triton.language"
"""Triton's interpreter replaces it while a kernel runs, and leaves what it replaced for a device function such as
tl.sum."""


def owners() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Modules and classes to look at, with their names."""
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    for name, module in list(sys.modules.items()):
        if is_interpreted and name.startswith(INTERPRETED):
            continue
        if isinstance(module, types.ModuleType) and (
            name.partition(".")[0] in WHOLE or name in process_state.MODULES or name in PYTHON
        ):
            yield name, vars(module)
            if name.partition(".")[0] == "harness":
                yield from (
                    (f"{name}.{kind.__name__}", vars(kind))
                    for kind in list(vars(module).values())
                    if isinstance(kind, type) and kind.__module__ == name
                )
    yield from ((kind.__name__, vars(kind)) for kind in CLASSES)


def inherited(owner: str) -> set[str]:
    """Names that a class has from its bases: one that it gets itself later hides the other."""
    kind = next((kind for kind in CLASSES if kind.__name__ == owner), object)
    return {name for base in kind.__mro__[1:-1] for name in vars(base)} - vars(kind).keys()


class Constants:
    """The harness's constants by module: tables of findings, tolerances of a check, numbers of calls."""

    def __init__(self) -> None:
        modules = [(name, module) for name, module in list(sys.modules.items()) if name.partition(".")[0] == "harness"]
        tables = [(name, vars(module)) for name, module in modules if isinstance(module, types.ModuleType)]
        named = [(name, table, [key for key in table if _is_constant(key, table[key])]) for name, table in tables]
        self._kept = [(name, table, keys, _texts(table, keys)) for name, table, keys in named if keys]

    def changed(self) -> list[str]:
        """The modules in which one is another now."""
        return [name for name, table, keys, before in self._kept if _texts(table, keys) != before]


def _texts(table: Mapping[str, Any], keys: list[str]) -> list[str]:
    return list(map(repr, map(table.get, keys)))


def _is_constant(name: str, value: Any) -> bool:
    return name.isupper() and isinstance(value, (int, float, str, tuple, list, dict, frozenset, set))


def is_closed(owner: str) -> bool:
    """Whether it is a class of the harness: one gets no new methods, and one that it got would hide another."""
    module, _, name = owner.rpartition(".")
    return module.partition(".")[0] == "harness" and isinstance(getattr(sys.modules.get(module), name, None), type)


def is_watched(value: Any) -> bool:
    """Plain data changes in use; functions, classes, modules and locks, which the harness waits for, do not."""
    return callable(value) or isinstance(value, (types.ModuleType, property, staticmethod, classmethod, *LOCKS))


def package_of(value: Any) -> str:
    """Top-level package whose code a new value is; empty if it is a source's, or unknown."""
    function = getattr(value, "__wrapped__", value) if not isinstance(value, types.FunctionType) else value
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return ""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == code.co_filename:
            return "" if name.startswith("_kb_") or name == "__main__" else name.partition(".")[0]
    return ""
