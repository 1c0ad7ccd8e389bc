"""Nested arguments and results as flat, named leaves: `weights.norm.weight`, `caches.0`.

Whatever copies, compares or varies values works on flat dicts; an entry is called with the arguments as the task makes
them. A container without tensors is one leaf, such as a tuple of sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

Build = Callable[[dict[str, Any]], Any]
"""Makes a value again from the flat leaves."""
SCALARS = (int, float, complex, str, bool, torch.dtype, torch.device, type(None))

SEQUENCES = frozenset({tuple, list, *(kind for kind in vars(torch.return_types).values() if isinstance(kind, type))})
"""Also what torch's own functions return, such as `torch.sort`."""


class BadLeaf(Exception):
    """A value that is neither a tensor nor plain data; the message says what it is."""


def flattened(arguments: dict[str, Any]) -> tuple[dict[str, Any], Build | None]:
    """The leaves of the arguments, and how to make these again; None if they are the leaves themselves."""
    leaves: dict[str, Any] = {}
    builds = {name: _flatten(name, value, leaves) for name, value in arguments.items()}
    if all(build is None for build in builds.values()):
        return leaves, None
    return leaves, _dict({name: build or _leaf(name) for name, build in builds.items()})


def _flatten(name: str, value: Any, leaves: dict[str, Any]) -> Build | None:
    """Adds the leaves of a value; returns how to make it again, or None if it is a leaf that may be passed on."""
    if isinstance(value, (dict, list, tuple)) and has_tensor(value):
        parts = {key: _flatten(f"{name}.{key}", item, leaves) or _leaf(f"{name}.{key}") for key, item in items(value)}
        return _dict(parts) if isinstance(value, dict) else _sequence(type(value), list(parts.values()))
    if name in leaves:
        raise BadLeaf(f"{name!r} is there twice")
    _check(name, value)
    leaves[name] = value
    if not isinstance(value, (dict, list)):
        return None
    return lambda inputs: copy.deepcopy(inputs[name])  # what a call does to it must not reach the next


def _check(name: str, value: Any) -> None:
    if isinstance(value, (torch.Tensor, *SCALARS)):
        return
    if not isinstance(value, (dict, list, tuple)):
        raise BadLeaf(f"{name!r} is of type {type(value).__name__}")
    for key, item in items(value):
        _check(f"{name}.{key}", item)


def is_plain(value: Any) -> bool:
    """Whether a container has only plain data in it, at any depth."""
    try:
        _check("", value)
    except BadLeaf:
        return False
    return isinstance(value, (dict, list, tuple)) and not has_tensor(value)


def items(value: Any) -> Iterator[tuple[Any, Any]]:
    """The items of a container with their keys."""
    return iter(value.items() if isinstance(value, dict) else enumerate(value))


def has_tensor(value: Any) -> bool:
    if isinstance(value, (dict, list, tuple)):
        return any(has_tensor(item) for _key, item in items(value))
    return isinstance(value, torch.Tensor)


def _leaf(name: str) -> Build:
    return lambda inputs: inputs[name]


def _dict(parts: dict[Any, Build]) -> Build:
    return lambda inputs: {key: part(inputs) for key, part in parts.items()}


def _sequence(kind: type, parts: list[Build]) -> Build:
    if hasattr(kind, "_fields"):  # a named tuple
        return lambda inputs: kind(*(part(inputs) for part in parts))
    return lambda inputs: kind(part(inputs) for part in parts)
