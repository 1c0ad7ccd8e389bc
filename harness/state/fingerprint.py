"""A fingerprint of the worker's process, taken before a source is loaded and compared after its load and its run.

The worker goes on with the next save, and so would whatever the last source did to it. A setting is put back; a
replaced function cannot be, because references to it remain: the workbench replaces the worker.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any

from harness.state import settings, watched_names

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_HEADER = object.__basicsize__
"""Where a builtin has the pointer to its definition, which begins with its name and its C function."""
_PARTS, _VALUE = tuple(map(attrgetter, ("__code__", "__defaults__", "__kwdefaults__"))), attrgetter("value")
_ONE_BY_ONE = frozenset(("builtins", __name__))
"""Tables compared entry by entry with `is`, because they hold the functions that compare all other tables."""


@dataclass(frozen=True)
class Changes:
    """What a source did to the process."""

    restored: tuple[str, ...] = ()
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Functions and settings that cannot be put back, each with the identity of its new value."""
    by_packages: tuple[tuple[str, str], ...] = ()
    """Names that an imported package replaced by its code, with the package."""


class Functions:
    """The functions, classes and modules of some tables, as they are now."""

    def __init__(self, tables: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        tables = list(tables)
        self.tables = [
            (owner, table, {**dict.fromkeys(watched_names.inherited(owner)), **_watched(table)})
            for owner, table in tables
        ]
        self._closed = [(owner, table, frozenset(table)) for owner, table in tables if watched_names.is_closed(owner)]
        found = {id(value): value for _, _, kept in self.tables for value in kept.values() if _is_function(value)}
        self._functions = list(found.values())
        self._parts = [(part, list(map(part, self._functions))) for part in _PARTS]
        builtins = {id(value): value for _, _, kept in self.tables for value in kept.values() if _is_builtin(value)}
        cells = [(item, cell) for item in builtins.values() for cell in _cells(item)]
        self._builtins, self._cells = [item for item, _ in cells], [cell for _, cell in cells]
        self._targets = list(map(_VALUE, self._cells))
        own = [item for item in found.values() if str(item.__module__).startswith("harness.")]
        self._numbers = [(item, said) for item in own if (said := _numbers(item.__code__)) != repr([])]

    def replaced(self) -> Iterator[tuple[str, str, Any]]:
        """Owner, name and new value of each that is another object now; None for one that is gone."""
        for owner, table, kept in self.tables:
            if owner not in _ONE_BY_ONE and all(map(is_, map(table.get, kept), kept.values())):
                continue
            get = table.get
            for name, value in kept.items():
                if get(name) is not value:
                    yield owner, name, get(name)
        for owner, table, names in self._closed:
            if len(table) > len(names):
                more = (name for name in table if name not in names)
                yield from ((owner, name, table[name]) for name in more if watched_names.is_watched(table[name]))

    def rewritten(self) -> dict[str, int]:
        """Functions whose code or defaults were exchanged in place, each with the identity of its code."""
        found: dict[str, int] = {}
        for part, before in self._parts:
            if not all(map(is_, map(part, self._functions), before)):
                pairs = zip(self._functions, before, strict=True)
                found |= {_full_name(item): id(item.__code__) for item, value in pairs if part(item) is not value}
        found |= {_full_name(item): 0 for item, said in self._numbers if _numbers(item.__code__) != said}
        targets = list(map(_VALUE, self._cells))
        if targets != self._targets:
            changed = [now != was for now, was in zip(targets, self._targets, strict=True)]
            items = itertools.compress(self._builtins, changed)
            found |= {f"{getattr(item, '__module__', '')}.{item.__name__}": 1 for item in items}
        return found

    def accept(self, owner: str, name: str, value: Any) -> None:
        for known, _, kept in self.tables:
            if known == owner:
                kept[name] = value


class Fingerprint:
    """The state before the first source."""

    def __init__(self) -> None:
        self._packages = _packages()
        self._functions = Functions(watched_names.owners())
        self._restorable = [(item, item.read()) for item in settings.RESTORED]
        self._kept, self._constants = settings.kept(), watched_names.Constants()

    def look(self, restore: bool = True, mentions: Callable[[str], bool] = lambda name: True) -> Changes:
        """What has changed since; puts settings back, unless the source is still to run with its own.

        `mentions` says whether the source has a word in its text.
        """
        restored = self._restore(mentions) if restore else []
        replaced: dict[str, int] = dict.fromkeys(settings.changed(self._kept), 0)
        replaced |= {f"a constant of {name}": 0 for name in self._constants.changed()}
        by_packages = []
        for owner, name, now in list(self._functions.replaced()):
            package = watched_names.package_of(now)
            if (owner, name) in watched_names.FOLLOWS_SETTINGS:
                continue
            by_torch = package in watched_names.LIBRARIES and (owner, name) in watched_names.SET_BY_TORCH
            if package == "harness" or by_torch:
                self._functions.accept(owner, name, now)
            elif package and package not in watched_names.LIBRARIES:
                self._functions.accept(owner, name, now)
                by_packages.append((f"{owner}.{name}", package))
            else:
                replaced[f"{owner}.{name}"] = id(now)
        replaced |= self._functions.rewritten()
        return Changes(tuple(restored), replaced, tuple(by_packages))

    def begin(self) -> None:
        """Before a source loads: packages imported from now on are the source's."""
        self._packages = _packages()

    def settings(self) -> list[Any]:
        return [item.read() for item, _ in self._restorable]

    def accept(self, settings_before: list[Any], replaced_before: Mapping[str, int]) -> None:
        """Takes what has changed since for part of the process: the task's own files did it."""
        for index, ((item, base), before) in enumerate(zip(self._restorable, settings_before, strict=True)):
            now = item.read()
            self._restorable[index] = (item, base if now == before else now)
        for owner, name, now in list(self._functions.replaced()):
            if replaced_before.get(f"{owner}.{name}") != id(now):
                self._functions.accept(owner, name, now)

    def _restore(self, mentions: Callable[[str], bool]) -> list[str]:
        imported = bool(_packages() - self._packages)
        found = []
        for index, (item, before) in enumerate(self._restorable):
            now = item.read()
            if now == before:
                continue
            if item.by_packages:
                before = _with_packages(before, now, mentions, imported)
                self._restorable[index] = item, before
            if now != before:
                item.restore(before)
                found.append(item.name)
        return found


def _with_packages(before: Any, now: Any, mentions: Callable[[str], bool], imported: bool) -> Any:
    """The setting with what an imported package has done to it, which it does only once: all, or those variables of the
    environment that the source does not name. What the first compile sets may come long after its import."""
    if not isinstance(now, dict):
        return now if imported else before
    new = [name for name, value in now.items() if before.get(name) != value and not mentions(name)]
    return before | {name: now[name] for name in new if imported or name in settings.SET_BY_COMPILERS}


def _packages() -> set[str]:
    tops = {name.partition(".")[0] for name in sys.modules}
    return {name for name in tops if not name.startswith("_kb_")} - sys.stdlib_module_names


def _watched(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in list(table.items()) if watched_names.is_watched(value)}


def _numbers(code: types.CodeType) -> str:
    """The numbers in a function; C code can change them in place."""
    return repr([value for value in code.co_consts if type(value) in (int, float)])


def _full_name(function: types.FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _is_builtin(value: Any) -> bool:
    return type(value) is types.BuiltinFunctionType and sys.implementation.name == "cpython"


def _cells(value: Any) -> tuple[ctypes.c_void_p, ...]:
    """Where a builtin has its definition, and this its C function: a source can exchange either and leave the object as
    it is."""
    definition = ctypes.c_void_p.from_address(id(value) + _HEADER)
    return () if definition.value is None else (definition, ctypes.c_void_p.from_address(definition.value + _POINTER))


def _is_function(value: Any) -> bool:
    return type(value) is types.FunctionType
