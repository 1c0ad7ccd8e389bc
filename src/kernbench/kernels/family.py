"""One task's files as modules of their own: `kernbench.kernels._norm_infer.solution`, and its neighbors next to it.

The files of a task import each other by bare names (`import portable`), and every task has a solution.py. So each of
these modules has an `__import__` that looks into its own folder first; sys.path, and a program's own `solution`, stay
untouched.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kernbench.task import lookup

_loading = threading.RLock()


def function(family: str, file: str, name: str) -> Callable[..., Any]:
    with _loading:
        found: Callable[..., Any] = getattr(_module(family, file), name)
        return found


def _module(family: str, file: str) -> ModuleType:
    name = f"{__package__}._{family}.{file}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, _path(family, file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": functools.partial(_import, family)}
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import(family: str, name: str, *rest: Any, **named: Any) -> ModuleType:
    level = rest[3] if len(rest) > 3 else named.get("level", 0)
    if level == 0 and _path(family, name).is_file():
        with _loading:
            return _module(family, name)
    return builtins.__import__(name, *rest, **named)


def _path(family: str, file: str) -> Path:
    return lookup.shipped_folder() / family / f"{file}.py"
