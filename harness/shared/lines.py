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
import signal
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

PROTOCOL = 1
"""Version of the lines between workbench and worker."""
STACK_SIGNAL = signal.SIGUSR2
"""Makes a worker print where it is."""
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
    plan = _plan(typing.cast(Any, type(record)))
    return {key: finite(getattr(record, name)) for key, name in zip(plan.keys, plan.names, strict=True)}


def encode(event: str, record: Any = None, **extra: Any) -> str:
    """One JSON line, without its newline."""
    data = {"event": event, **(to_dict(record) if record is not None else {}), **finite(extra)}
    return _dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(cls: type[_T], data: dict[str, Any]) -> _T:
    """A record from JSON data. Ignores unknown keys; missing ones get their default."""
    plan = _plan(typing.cast(Any, cls))
    try:
        values = list(map(data.__getitem__, plan.keys))
    except KeyError:
        given = {**plan.defaults, **{key: make() for key, make in plan.made}, **data}
        values = list(map(given.__getitem__, plan.keys))
    for place, convert in plan.converters:
        if values[place] is not None:
            values[place] = convert(values[place])
    for place in plan.floats:
        if type(values[place]) is int:
            values[place] = float(values[place])
    record = plan.make(*values)
    if plan.make is not cls:
        record.__class__ = cls
    return typing.cast(_T, record)


def decode_checked(cls: type[_T], data: Any) -> _T:
    """The same from a line that any program may have written: raises if a value does not have its field's type."""
    record = decode(cls, data)
    if not _test(typing.cast(Any, cls))(record):
        raise TypeError(f"not a {cls.__name__}")
    return record


@functools.cache
def _test(hint: Any) -> Callable[[Any], bool]:
    """Tests whether a value has this type; made once per type, as a long log has millions of values."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        tests = [_test(part) for part in inner if part is not type(None)]
        first = tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)
        return (lambda value: value is None or first(value)) if type(None) in inner else first
    if origin is typing.Literal:
        words = frozenset(inner)
        return lambda value: type(value) is str and value in words
    if origin is tuple:
        item = _test(inner[0])
        return lambda value: type(value) is tuple and all(map(item, value))
    if origin is dict:
        item = _test(inner[1])
        return lambda value: type(value) is dict and all(map(item, value.values()))
    if dataclasses.is_dataclass(hint):
        return _test_of_fields(typing.cast(Any, hint))
    if hint is Any:
        return lambda value: True
    return _is_finite if hint is float else lambda value: type(value) is hint


def _test_of_fields(cls: type) -> Callable[[Any], bool]:
    """Most records of a log have the same types in the same places: a combination that has passed is looked up, and
    only values whose type says too little are looked at."""
    hints = typing.get_type_hints(cls)
    values_of = operator.attrgetter(*hints)
    tests = [_test(kind) for kind in hints.values()]
    rest = [(place, _without_none(kind)) for place, kind in enumerate(hints.values()) if not _is_plain(kind)]
    floats = [place for place, kind in rest if kind is float]
    deep = [(place, _test(kind)) for place, kind in rest if kind is not float]
    passed: set[tuple[type, ...]] = set()
    last: Any = None

    def test_record(record: Any) -> bool:
        nonlocal last
        if type(record) is not cls:
            return False
        if record is last:  # many records share one environment
            return True
        values = values_of(record)
        kinds = tuple(map(type, values))
        if kinds not in passed and not all(test(value) for test, value in zip(tests, values, strict=True)):
            return False
        for place in floats:
            value = values[place]
            if value is not None and value - value != 0.0:  # infinite or NaN
                return False
        for place, test in deep:
            if values[place] is not None and not test(values[place]):
                return False
        passed.add(kinds)
        last = record
        return True

    return test_record


def _is_plain(hint: Any) -> bool:
    """Whether the type of a value says all there is to test."""
    return all(part in (Any, str, int, bool, type(None)) for part in _parts(hint))


def _without_none(hint: Any) -> Any:
    return typing.Union[tuple(part for part in _parts(hint) if part is not type(None))]  # noqa: UP007


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


class _Plan(typing.NamedTuple):
    """How to decode a class, computed once: a log of 10,000 runs is decoded on every start."""

    keys: tuple[str, ...]
    names: tuple[str, ...]
    defaults: dict[str, Any]
    """By key."""
    made: tuple[tuple[str, Callable[[], Any]], ...]
    """Keys of defaults that are not shared, each with what makes one."""
    converters: tuple[tuple[int, Callable[[Any], Any]], ...]
    """Each with the place of its field."""
    floats: tuple[int, ...]
    """JSON has them as integers if they are whole."""
    make: Callable[..., Any]
    """A class of the same layout that is not frozen, six times as fast to fill; the class itself if it validates its
    values or has a base."""


@functools.cache
def _plan(cls: type) -> _Plan:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(typing.cast(Any, cls))
    keys = tuple(item.metadata.get("key", item.name) for item in fields)
    converters = [(place, _converter(hints[item.name])) for place, item in enumerate(fields)]
    return _Plan(
        keys=keys,
        names=tuple(item.name for item in fields),
        defaults={
            key: item.default for key, item in zip(keys, fields, strict=True) if item.default is not dataclasses.MISSING
        },
        made=tuple(
            (key, item.default_factory)
            for key, item in zip(keys, fields, strict=True)
            if item.default_factory is not dataclasses.MISSING
        ),
        converters=tuple((place, made) for place, made in converters if made not in (None, _as_float)),
        floats=tuple(place for place, made in converters if made is _as_float),
        make=cls if hasattr(cls, "__post_init__") or cls.__base__ is not object else _unfrozen(cls),
    )


def _unfrozen(cls: type) -> type:
    names = [item.name for item in dataclasses.fields(typing.cast(Any, cls))]
    return dataclasses.make_dataclass(cls.__name__, names, slots="__slots__" in vars(cls))


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
