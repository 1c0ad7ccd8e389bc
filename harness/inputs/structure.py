"""Nested arguments and results as flat, named leaves: `weights.norm.weight`, `caches.0`.

Whatever copies, compares or varies values works on flat dicts; an entry is called with the arguments as the task makes
them. A container without tensors is one leaf, such as a tuple of sizes. Of an object, such as a dataclass or a module,
the attributes that hold tensors are taken out; the rest is a leaf. Every call gets its own lists, dicts and objects:
what it does to them must not reach the next.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

Build = Callable[[dict[str, Any]], Any]
"""Makes a value again from the flat leaves."""
SCALARS = (int, float, complex, str, bool, torch.dtype, torch.device, type(None))
FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType)
NOT_TAKEN_APART = (torch.Tensor, dict, list, tuple, types.ModuleType, *FUNCTIONS)
WEIGHTS = ("_parameters", "_buffers", "_modules")
"""Where a torch module has its tensors; their names leave it out."""


class BadLeaf(Exception):
    """A value that is neither a tensor nor plain data; the message says what it is."""


@dataclasses.dataclass(frozen=True)
class Shell:
    """An object without its tensors."""

    object: Any

    def __str__(self) -> str:
        return type(self.object).__name__


def flattened(arguments: dict[str, Any]) -> tuple[dict[str, Any], Build | None]:
    """The leaves of the arguments, and how to make these again; None if they are the leaves themselves."""
    leaves: dict[str, Any] = {}
    try:
        builds = {name: _flatten(name, value, leaves) for name, value in arguments.items()}
    except RecursionError:
        raise BadLeaf("an argument contains itself") from None
    if all(build is None for build in builds.values()):
        return leaves, None
    return leaves, _dict({name: build or _leaf(name) for name, build in builds.items()})


def _flatten(name: str, value: Any, leaves: dict[str, Any]) -> Build | None:
    """Adds the leaves of a value; returns how to make it again, or None if it is a leaf that may be passed on."""
    if _is_object(value):
        return _object(name, value, leaves)
    if is_container(value) and has_tensor(value):
        parts = {key: _flatten(f"{name}.{key}", item, leaves) or _leaf(f"{name}.{key}") for key, item in items(value)}
        return _dict(parts) if isinstance(value, dict) else _sequence(type(value), list(parts.values()))
    _check(name, value)
    _add(name, value.detach() if isinstance(value, torch.nn.Parameter) else value, leaves)
    # A tuple is its own copy if nothing in it can change.
    can_change = is_container(value) and copy.deepcopy(value) is not value
    return (lambda inputs: copy.deepcopy(inputs[name])) if can_change else None


def _add(name: str, leaf: Any, leaves: dict[str, Any]) -> None:
    if name in leaves:
        raise BadLeaf(f"{name!r} is there twice")
    leaves[name] = leaf


def _object(name: str, value: Any, leaves: dict[str, Any]) -> Build:
    try:
        shell = copy.copy(value)
        held = {key: vars(shell).pop(key) for key, item in vars(value).items() if has_tensor(item)}
        _add(name, Shell(copy.deepcopy(shell)), leaves)
    except (TypeError, ValueError, RecursionError, RuntimeError) as problem:
        raise BadLeaf(f"{name!r} is of type {type(value).__name__}, which cannot be copied") from problem
    parts = {}
    for key, item in held.items():
        place = name if key in WEIGHTS else f"{name}.{key}"
        parts[key] = _flatten(place, item, leaves) or _leaf(place)
    attributes = _dict(parts)

    def build(inputs: dict[str, Any]) -> Any:
        made = copy.deepcopy(inputs[name].object)
        vars(made).update(attributes(inputs))
        return made

    return build


def _is_object(value: Any) -> bool:
    """Whether it has attributes that are taken out."""
    return hasattr(value, "__dict__") and not isinstance(value, (*NOT_TAKEN_APART, Shell))


def _check(name: str, value: Any) -> None:
    if isinstance(value, (torch.Tensor, Shell, *SCALARS, *FUNCTIONS)):
        return
    if not is_container(value):
        raise BadLeaf(f"{name!r} is of type {type(value).__name__}")
    for key, item in items(value):
        _check(f"{name}.{key}", item)


def is_container(value: Any) -> bool:
    """Whether it is a dict, list or tuple, or of a class derived from one, such as a named tuple."""
    return issubclass(type(value), (dict, list, tuple))


def items(value: Any) -> Iterator[tuple[Any, Any]]:
    """The items of a container with their keys, as the built-in class has them: a source's own class could return
    different ones each time."""
    kind: Any = next(kind for kind in (dict, list, tuple) if issubclass(type(value), kind))
    return iter(kind.items(value)) if kind is dict else enumerate(kind.__iter__(value))


def plain(value: Any, leaf: Callable[[Any], Any] = lambda item: item) -> Any:
    """A result in lists and dicts of names, whatever containers it came in; `leaf` makes something of the rest."""
    if not is_container(value):
        return leaf(value)
    named = {str(key): item for key, item in items(value)}
    parts = {name: plain(item, leaf) for name, item in named.items()}
    return parts if issubclass(type(value), dict) else [*parts.values()]


def has_tensor(value: Any) -> bool:
    return _has_tensor(value, set())


def _has_tensor(value: Any, seen: set[int]) -> bool:
    inner = vars(value) if _is_object(value) else value
    if not is_container(inner):
        return isinstance(inner, torch.Tensor)
    if id(value) in seen:
        return False
    seen.add(id(value))
    return any(_has_tensor(item, seen) for _key, item in items(inner))


def _leaf(name: str) -> Build:
    return lambda inputs: inputs[name]


def _dict(parts: dict[Any, Build]) -> Build:
    return lambda inputs: {key: part(inputs) for key, part in parts.items()}


def _sequence(kind: type, parts: list[Build]) -> Build:
    if hasattr(kind, "_fields"):  # a named tuple
        return lambda inputs: kind(*(part(inputs) for part in parts))
    return lambda inputs: kind(part(inputs) for part in parts)
