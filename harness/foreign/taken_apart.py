"""Arguments of any structure as named tensors and numbers, and the way back: dicts, sequences, namespaces, modules.

kernbench copies, varies and checks flat inputs; a side's calls get them in the structure that the problem made. Lists,
dicts and objects are made anew for every call, so that what one side does to them does not reach another. Whatever is
neither one of these nor a tensor or a number stays as it was made, such as an activation function.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch

from harness.inputs import structure

Build = Callable[[dict[str, Any]], Any]
NUMBERS = (int, float, complex, str, bool, torch.dtype, type(None))
WEIGHTS = ("_parameters", "_buffers", "_modules")
"""Where a module has its tensors; the names of their places are left out."""
DEEPEST = 8


def taken_apart(value: Any) -> tuple[dict[str, Any], Build]:
    """The leaves by name, and a function that makes the value again from leaves."""
    leaves: dict[str, Any] = {}
    build = _part("", value, leaves, 0)
    return leaves, build


def _part(name: str, value: Any, leaves: dict[str, Any], depth: int) -> Build:
    if isinstance(value, (torch.Tensor, *NUMBERS)) or structure.is_plain(value):
        leaf = name or "input"
        if leaf in leaves:
            raise ValueError(f"two inputs are called {leaf}")
        leaves[leaf] = value.detach() if isinstance(value, torch.Tensor) else value
        return lambda given: given[leaf]
    if depth > DEEPEST or not _has_tensor(value, depth):
        is_container = isinstance(value, (dict, list, tuple))
        return lambda given: copy.deepcopy(value) if is_container else value
    if isinstance(value, (list, tuple)):
        items = [_part(_below(name, at), item, leaves, depth + 1) for at, item in enumerate(value)]
        return _sequence(type(value), items)
    own = value if isinstance(value, dict) else _attributes(value)
    parts = {key: _part(_below(name, key), item, leaves, depth + 1) for key, item in own.items()}
    if isinstance(value, dict):
        return lambda given: {key: part(given) for key, part in parts.items()}
    kind: Any = type(value)
    rest = {key: item for key, item in vars(value).items() if key not in parts}

    def build(given: dict[str, Any]) -> Any:
        made = kind.__new__(kind)
        made.__dict__.update(copy.deepcopy(rest))
        made.__dict__.update({key: part(given) for key, part in parts.items()})
        return made

    return build


def _below(name: str, key: Any) -> str:
    if key in WEIGHTS:
        return name
    own = f"input_{key}" if not name and isinstance(key, int) else str(key)
    return f"{name}.{own}" if name else own


def _attributes(value: Any) -> dict[str, Any]:
    """Of an object; of a module only what has its tensors."""
    if isinstance(value, torch.nn.Module):
        return {key: vars(value)[key] for key in WEIGHTS if _has_tensor(vars(value)[key], 0)}
    own: dict[str, Any] = vars(value)
    return own


def _has_tensor(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if depth > DEEPEST or isinstance(value, (*NUMBERS, type, types.ModuleType, types.FunctionType)):
        return False
    if isinstance(value, (list, tuple)):
        return any(_has_tensor(item, depth + 1) for item in value)
    if isinstance(value, dict) or hasattr(value, "__dict__"):
        own = value if isinstance(value, dict) else _attributes(value)
        return any(_has_tensor(item, depth + 1) for item in own.values())
    return False


def _sequence(kind: type, parts: list[Build]) -> Build:
    if hasattr(kind, "_fields"):  # a named tuple
        return lambda given: kind(*(part(given) for part in parts))
    return lambda given: kind(part(given) for part in parts)
