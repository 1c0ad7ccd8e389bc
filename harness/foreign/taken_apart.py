"""Arguments of any structure as named tensors and numbers, and the way back: dicts, sequences, namespaces, modules.

kernbench copies, varies and checks flat inputs; an adapter's calls get them in the structure that it made. Whatever is
neither a tensor nor a number stays as it was made, such as an activation function.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

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
    if isinstance(value, (torch.Tensor, *NUMBERS)):
        leaf = name or "input"
        if leaf in leaves:
            raise ValueError(f"make_case returned two inputs called {leaf}")
        leaves[leaf] = value.detach() if isinstance(value, torch.Tensor) else value
        return lambda given: given[leaf]
    if depth > DEEPEST or not _has_tensor(value, depth):
        return lambda given: value
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
        made.__dict__.update(rest)
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
        return {key: vars(value)[key] for key in WEIGHTS}
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
