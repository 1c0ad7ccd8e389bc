"""Records as JSON lines: `encode` writes one line, `decode` reads a dict back and ignores unknown keys.

NaN and infinities are never written. Works for any dataclass, including the workbench's. A field whose key on disk
differs from its Python name declares it: `disqualifying: bool = renamed("red", False)`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

PROTOCOL = 1
"""Version of the lines between workbench and worker."""
SCHEMA = 1
"""Version of the lines in `run --json` and runs.jsonl."""
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading a torn, edited or forged line may raise."""
_dumps = json.dumps
"""Bound before any source could replace it."""

_T = TypeVar("_T")


def renamed(key: str, default: Any) -> Any:
    """A field with a different key on disk and on the wire, so that files written before the rename stay valid."""
    return dataclasses.field(default=default, metadata={"key": key})


def finite(value: Any) -> Any:
    """The same data as plain JSON, with every NaN and infinity replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    return value


def to_dict(record: Any) -> dict[str, Any]:
    """A record as plain JSON data."""
    return {key: finite(getattr(record, name)) for key, name in _plan(typing.cast(Any, type(record))).names.items()}


def encode(event: str, record: Any = None, **extra: Any) -> str:
    """One JSON line, without its newline."""
    data = {"event": event, **(to_dict(record) if record is not None else {}), **finite(extra)}
    return _dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(cls: type[_T], data: dict[str, Any]) -> _T:
    """A record from JSON data. Ignores unknown keys; missing ones get their default."""
    plan = _plan(typing.cast(Any, cls))
    known = {plan.names[key]: value for key, value in data.items() if key in plan.names}
    for name, convert in plan.converters:
        value = known.get(name)
        if value is not None:
            known[name] = convert(value)
    for name in plan.floats:
        if type(known.get(name)) is int:
            known[name] = float(known[name])
    if plan.checked or not plan.required <= known.keys():
        return cls(**known)
    for name, make in plan.factories:
        if name not in known:
            known[name] = make()
    record, put = object.__new__(cls), object.__setattr__  # __init__ would check every name again
    for name, value in {**plan.defaults, **known}.items():
        put(record, name, value)
    return record


def decode_checked(cls: type[_T], data: Any) -> _T:
    """The same from a line that any program may have written: raises if a value does not have its field's type."""
    record = decode(cls, data)
    if not _test(typing.cast(Any, cls))(record):
        raise TypeError(f"not a {cls.__name__}")
    return record


@functools.cache
def _test(hint: Any) -> Callable[[Any], bool]:
    """Whether a value has this type; made once per type, as a long log has millions of values."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        tests = [_test(part) for part in inner if part is not type(None)]
        first = tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)
        return (lambda value: value is None or first(value)) if type(None) in inner else first
    if origin is typing.Literal:
        return lambda value: type(value) is str and value in inner
    if origin is tuple:
        item = _test(inner[0])
        return lambda value: type(value) is tuple and all(map(item, value))
    if origin is dict:
        item = _test(inner[1])
        return lambda value: type(value) is dict and all(map(item, value.values()))
    if dataclasses.is_dataclass(hint):
        fields = [(operator.attrgetter(name), _test(kind)) for name, kind in typing.get_type_hints(hint).items()]
        return lambda value: type(value) is hint and all(test(get(value)) for get, test in fields)
    if hint is Any:
        return lambda value: True
    return _is_finite if hint is float else lambda value: type(value) is hint


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


class _Plan(typing.NamedTuple):
    """How to decode a class, computed once: a log of 10,000 runs is decoded on every start."""

    names: dict[str, str]
    """Field names by key."""
    required: frozenset[str]
    converters: tuple[tuple[str, Callable[[Any], Any]], ...]
    floats: tuple[str, ...]
    """JSON has them as integers if they are whole."""
    defaults: dict[str, Any]
    factories: tuple[tuple[str, Callable[[], Any]], ...]
    checked: bool
    """The class validates itself in `__post_init__`."""


@functools.cache
def _plan(cls: type) -> _Plan:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(typing.cast(Any, cls))
    converters = [(item.name, _converter(hints[item.name])) for item in fields]
    plain = {item.name: item.default for item in fields if item.default is not dataclasses.MISSING}
    made = [(item.name, item.default_factory) for item in fields if item.default_factory is not dataclasses.MISSING]
    names = {item.metadata.get("key", item.name): item.name for item in fields}
    return _Plan(
        names=names,
        required=frozenset(names.values()) - plain.keys() - {name for name, _make in made},
        converters=tuple((name, made) for name, made in converters if made not in (None, _as_float)),
        floats=tuple(name for name, made in converters if made is _as_float),
        defaults=plain,
        factories=tuple(made),
        checked=hasattr(cls, "__post_init__"),
    )


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """Converts JSON data to this type; None if JSON's own value will do. Never called with None."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _converter(inner[0]) if len(inner) == 1 else None
    if origin is tuple:
        convert = _converter(typing.get_args(hint)[0])
        return tuple if convert is None else lambda value: tuple(_apply(convert, part) for part in value)
    if origin is dict:
        item = _converter(typing.get_args(hint)[1])
        return None if item is None else lambda value: {key: _apply(item, part) for key, part in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: value if isinstance(value, hint) else decode(hint, value)
    return _as_float if hint is float else None


def _apply(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _as_float(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value
