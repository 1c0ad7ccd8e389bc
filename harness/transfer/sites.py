"""Sites: Python callables of a model, found by `MODULE:NAME`, replaced and put back.

A module is one of the model's own folder or any that can be imported. A function that other modules took by
`from m import f` is replaced in all of them.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from harness.load.side import Side
from harness.shared import format as fmt


class ModelProblem(Exception):
    """The model cannot be used; one sentence."""


@dataclass(frozen=True)
class Place:
    """Where a callable is kept."""

    owner: Any
    name: str

    def put(self, value: Any) -> None:
        setattr(self.owner, self.name, value)


@dataclass(frozen=True)
class Found:
    """A callable, as its owner keeps it, and every place that has it."""

    call: str
    original: Any
    places: tuple[Place, ...]


def find(side: Side, call: str) -> Found:
    """The callable that `MODULE:NAME` names; NAME may be dotted, as in `Class.method`."""
    return find_in(_module(side, call.partition(":")[0]), call)


def find_in(module: ModuleType, call: str) -> Found:
    owner, name = _owner(module, call)
    # a class inherits what its __dict__ lacks: then the replacement must go to the class that has it
    holder = next((base for base in getattr(owner, "__mro__", (owner,)) if name in vars(base)), owner)
    original = vars(holder)[name] if name in vars(holder) else getattr(owner, name)  # by a module's __getattr__
    return Found(call, original, _places(holder, name, original))


def named(side: Side, call: str) -> Any:
    """The value itself, for what is only called."""
    return getattr(*_owner(_module(side, call.partition(":")[0]), call))


def _owner(module: ModuleType, call: str) -> tuple[Any, str]:
    owner: Any = module
    *parents, name = call.partition(":")[2].split(".")
    for part in parents:
        _must_have(owner, part, call)
        owner = getattr(owner, part)
    _must_have(owner, name, call)
    return owner, name


def _module(side: Side, name: str) -> ModuleType:
    if side.holds(name.partition(".")[0]):
        return side.module(f"{name.replace('.', '/')}.py")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not name.startswith(problem.name):
            raise
        raise ModelProblem(f"there is no module {name!r} (model.toml)") from None


def _must_have(owner: Any, name: str, call: str) -> None:
    if not hasattr(owner, name):
        near = get_close_matches(name, dir(owner), 3)
        hint = f"; did you mean {fmt.joined(near, 'or')}?" if near else ""
        raise ModelProblem(f"{call}: there is no {name!r} in it (model.toml){hint}")


def _places(owner: Any, name: str, original: Any) -> tuple[Place, ...]:
    if not isinstance(owner, ModuleType):
        return (Place(owner, name),)
    others = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType) and module is not owner]
    taken = [(module, alias) for module in others for alias, value in list(vars(module).items()) if value is original]
    return (Place(owner, name), *(Place(module, alias) for module, alias in taken))


@dataclass(frozen=True)
class Patches:
    """Replacements that go in together. `put` and `take_back` are for the time between two steps."""

    replaced: Sequence[tuple[Found, Any]] = ()

    def put(self) -> None:
        for found, new in self.replaced:
            for place in found.places:
                place.put(new)

    def take_back(self) -> None:
        for found, _ in self.replaced:
            for place in found.places:
                place.put(found.original)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        try:
            self.put()
            yield
        finally:
            self.take_back()
